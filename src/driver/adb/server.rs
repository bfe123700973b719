//! The client's side of an adb server.
//!
//! One TCP connection to the loopback for each thing that is asked. A request is four hexadecimal digits, its length, and
//! the name of a service; the answer is `OKAY`, or `FAIL` with a length and words.
//! - `host:track-devices-l`: then a length and the listing, at once and after each change, until the connection ends.
//! - `host:devices-l`: then a length and the listing as it is now.
//! - `host:transport:<serial>`: from now on the connection is the device's, and takes one service of it.
//! - `shell:<command>`: then what the command writes, until it ends. Every Android has this one; the exit code, which
//!   only newer ones give (`shell,v2`), is not needed here.
//!
//! The server is not trusted: each answer has a maximum, and each has to come in its time, but for the listings, which come
//! when something changes.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::serial::Serial;

/// What a server has for an answer that it can give by itself, in time.
const SERVER_BOUND: Duration = Duration::from_secs(5);
/// What a shell's answer may have, in bytes.
const SHELL_BYTES_MAX: usize = 8 * 1024;
/// What is kept of the words of a refusal, in characters.
const REFUSAL_CHARS_MAX: usize = 200;

/// An adb server of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Server {
    /// Its port on the loopback.
    pub port: u16,
}

/// Why an adb server has not answered as asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServerError {
    /// Nobody listens.
    #[error("nobody listens")]
    Nobody,
    /// The connection was ended before the answer was.
    #[error("it has hung up")]
    HungUp,
    /// The connection broke, or could not be made.
    #[error("the connection failed: {0}")]
    Broken(io::Error),
    /// It did not come in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The server said no, in its words.
    #[error("{0}")]
    Refused(String),
    /// It says what no adb server says.
    #[error("it does not answer as an adb server does")]
    Strange,
}

impl From<io::Error> for ServerError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => ServerError::Nobody,
            io::ErrorKind::UnexpectedEof => ServerError::HungUp,
            _ => ServerError::Broken(error),
        }
    }
}

impl Server {
    /// Follows the listings.
    pub(super) async fn track(self) -> Result<Listings, ServerError> {
        let stream = in_time(SERVER_BOUND, self.ask("host:track-devices-l")).await?;
        Ok(Listings(stream))
    }

    /// The listing as it is now.
    pub(super) async fn list(self) -> Result<String, ServerError> {
        in_time(SERVER_BOUND, async {
            let mut stream = self.ask("host:devices-l").await?;
            block(&mut stream).await
        })
        .await
    }

    /// What a command writes in the device's shell, all of it within `bound`; 8 KiB at most.
    pub(super) async fn shell(self, serial: &Serial, command: &str, bound: Duration) -> Result<String, ServerError> {
        in_time(bound, async {
            let mut stream = self.ask(&format!("host:transport:{serial}")).await?;
            request(&mut stream, &format!("shell:{command}")).await?;
            let mut said = Vec::new();
            stream.take(SHELL_BYTES_MAX as u64 + 1).read_to_end(&mut said).await?;
            if said.len() > SHELL_BYTES_MAX { Err(ServerError::Strange) } else { Ok(text(said)) }
        })
        .await
    }

    async fn ask(self, service: &str) -> Result<TcpStream, ServerError> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        request(&mut stream, service).await?;
        Ok(stream)
    }
}

/// The listings of a server, as they come.
#[derive(Debug)]
pub(super) struct Listings(TcpStream);

impl Listings {
    /// The next one. After a cancelled call nothing that follows makes sense.
    pub(super) async fn next(&mut self) -> Result<String, ServerError> {
        let mut digits = [0; 4];
        // It comes when something changes; what has begun has to be said at once.
        self.0.read_exact(&mut digits[..1]).await?;
        in_time(SERVER_BOUND, async {
            self.0.read_exact(&mut digits[1..]).await?;
            rest(&mut self.0, digits).await
        })
        .await
    }
}

async fn in_time<T>(bound: Duration, work: impl Future<Output = Result<T, ServerError>>) -> Result<T, ServerError> {
    timeout(bound, work).await.unwrap_or(Err(ServerError::Late(bound)))
}

/// Asks for a service, and reads whether it is given.
async fn request(stream: &mut TcpStream, service: &str) -> Result<(), ServerError> {
    stream.write_all(format!("{:04x}{service}", service.len()).as_bytes()).await?;
    let mut word = [0; 4];
    stream.read_exact(&mut word).await?;
    match &word {
        b"OKAY" => Ok(()),
        b"FAIL" => {
            let words = block(stream).await?;
            Err(ServerError::Refused(words.chars().filter(|c| !c.is_control()).take(REFUSAL_CHARS_MAX).collect()))
        }
        _ => Err(ServerError::Strange),
    }
}

/// Four hexadecimal digits and so many bytes: never more than 64 KiB.
async fn block(stream: &mut TcpStream) -> Result<String, ServerError> {
    let mut digits = [0; 4];
    stream.read_exact(&mut digits).await?;
    rest(stream, digits).await
}

async fn rest(stream: &mut TcpStream, digits: [u8; 4]) -> Result<String, ServerError> {
    // `from_str_radix` takes a sign.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(ServerError::Strange);
    }
    let length = std::str::from_utf8(&digits).ok().and_then(|digits| u16::from_str_radix(digits, 16).ok());
    let mut bytes = vec![0; usize::from(length.ok_or(ServerError::Strange)?)];
    stream.read_exact(&mut bytes).await?;
    Ok(text(bytes))
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Says `answer` to whoever connects first, after it has read a request, and then says nothing more.
    async fn says(answer: &'static [u8]) -> (Server, tokio::task::JoinHandle<TcpStream>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = Server { port: listener.local_addr().unwrap().port() };
        let saying = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 64];
            let _ = stream.read(&mut request).await.unwrap();
            stream.write_all(answer).await.unwrap();
            stream
        });
        (server, saying)
    }

    fn serial() -> Serial {
        "S1".parse().unwrap()
    }

    #[tokio::test]
    async fn an_answer_is_read_to_its_length() {
        let (server, _saying) = says(b"OKAY0006devicerubbish").await;
        assert_eq!(server.list().await.unwrap(), "device");
    }

    #[tokio::test]
    async fn a_refusal_is_told_in_the_words_of_the_server_without_what_a_terminal_would_obey() {
        let (server, _saying) = says(b"FAIL0010device \x1b\x07is gone").await;
        let refused = server.list().await.unwrap_err();
        assert_eq!(refused.to_string(), "device is gone");
        assert!(matches!(refused, ServerError::Refused(_)));
    }

    #[tokio::test]
    async fn what_is_no_adb_server_is_strange() {
        for answer in [&b"HTTP/1.1 400 Bad Request"[..], b"OKAY+00aabcdefghij", b"OKAYzzzz"] {
            let (server, _saying) = says(answer).await;
            assert!(matches!(server.list().await, Err(ServerError::Strange)), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_port_without_a_listener_is_told_from_one_that_hangs_up() {
        let (server, saying) = says(b"OKAY").await;
        let hangs_up = async { drop(saying.await.unwrap()) };
        let (answer, ()) = tokio::join!(server.list(), hangs_up);
        assert!(matches!(answer, Err(ServerError::HungUp)), "{answer:?}");
        // The listener went with its task.
        let nobody = server.list().await;
        assert!(matches!(nobody, Err(ServerError::Nobody)), "{nobody:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_late() {
        let (server, _saying) = says(b"OKAY00").await;
        let late = server.list().await;
        assert!(matches!(late, Err(ServerError::Late(SERVER_BOUND))), "{late:?}");
        let bound = Duration::from_secs(2);
        let (server, _saying) = says(b"OKAY").await;
        let late = server.shell(&serial(), "echo", bound).await;
        assert!(matches!(late, Err(ServerError::Late(late)) if late == bound), "{late:?}");
    }

    #[tokio::test]
    async fn a_shell_that_never_ends_its_talk_is_cut_off() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = Server { port: listener.local_addr().unwrap().port() };
        let talks = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"OKAYOKAY").await.unwrap();
            // Until nobody listens any more.
            while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
        };
        let serial = serial();
        let (answer, ()) = tokio::join!(server.shell(&serial, "yes", Duration::from_secs(60)), talks);
        assert!(matches!(answer, Err(ServerError::Strange)), "{answer:?}");
    }
}
