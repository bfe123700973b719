//! HTTP/1.1 by hand, one request for each connection: so that a test can send what no client library would, and see
//! exactly what came back.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

/// No answer takes longer: the longest that a test waits for is a `noWait` request (10 s).
const ANSWER_BOUND: Duration = Duration::from_secs(20);

/// Where a node answers, and as whom it is asked.
#[derive(Debug, Clone)]
pub struct Door {
    place: Place,
    /// The header `Authorization`, whole.
    authorization: Option<String>,
}

#[derive(Debug, Clone)]
enum Place {
    Tcp(u16),
    Unix(PathBuf),
}

/// One request, with what is not usual about it.
#[derive(Debug, Clone, Default)]
pub struct Call<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub headers: Vec<(&'a str, &'a str)>,
    pub body: Vec<u8>,
}

/// What came back, whole.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Value,
}

impl Door {
    /// The door at a port of loopback.
    pub fn tcp(port: u16) -> Self {
        Self { place: Place::Tcp(port), authorization: None }
    }

    /// The door at a Unix socket, where the user is the operator.
    pub fn unix(path: PathBuf) -> Self {
        Self { place: Place::Unix(path), authorization: None }
    }

    /// The same door with a bearer token.
    pub fn with_token(&self, secret: &str) -> Self {
        self.with_authorization(&format!("Bearer {secret}"))
    }

    /// The same door with any header `Authorization`.
    pub fn with_authorization(&self, header: &str) -> Self {
        Self { authorization: Some(header.to_owned()), ..self.clone() }
    }

    /// `GET`.
    pub fn get(&self, path: &str) -> Answer {
        self.send(&Call { method: "GET", path, ..Call::default() })
    }

    /// `DELETE`.
    pub fn delete(&self, path: &str) -> Answer {
        self.send(&Call { method: "DELETE", path, ..Call::default() })
    }

    /// `PATCH` with a JSON body.
    pub fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(&Call { method: "PATCH", ..Call::json(path, &body.to_string()) })
    }

    /// `POST` with a JSON body.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, &body.to_string())
    }

    /// `POST` of a text that says it is JSON.
    pub fn post_text(&self, path: &str, body: &str) -> Answer {
        self.send(&Call::json(path, body))
    }

    /// Sends a request whose answer must come.
    pub fn send(&self, call: &Call<'_>) -> Answer {
        self.try_send(call).unwrap_or_else(|error| panic!("{} {}: {error}", call.method, call.path))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The node was not there, or went away before its answer was whole.
    pub fn try_send(&self, call: &Call<'_>) -> io::Result<Answer> {
        let mut bytes = Vec::new();
        self.open(call)?.read_to_end(&mut bytes)?;
        Answer::parse(&bytes)
    }

    /// Sends a request whose answer is read as it comes.
    ///
    /// # Errors
    /// The node was not there.
    pub fn open(&self, call: &Call<'_>) -> io::Result<Box<dyn Read + Send>> {
        match &self.place {
            Place::Tcp(port) => {
                let mut stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.set_read_timeout(Some(ANSWER_BOUND))?;
                self.write(&mut stream, call)?;
                Ok(Box::new(stream))
            }
            Place::Unix(path) => {
                let mut stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(ANSWER_BOUND))?;
                self.write(&mut stream, call)?;
                Ok(Box::new(stream))
            }
        }
    }

    fn write(&self, stream: &mut impl Write, call: &Call<'_>) -> io::Result<()> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: berth\r\nConnection: close\r\n", call.method, call.path);
        for (name, value) in &call.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(authorization) = &self.authorization {
            head.push_str(&format!("Authorization: {authorization}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", call.body.len()));
        stream.write_all(head.as_bytes())?;
        stream.write_all(&call.body)
    }
}

impl<'a> Call<'a> {
    /// A `POST` of a text that says it is JSON.
    pub fn json(path: &'a str, body: &str) -> Self {
        let headers = vec![("Content-Type", "application/json")];
        Self { method: "POST", path, headers, body: body.as_bytes().to_vec() }
    }

    /// With one more header.
    pub fn header(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl Answer {
    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "the answer is not whole");
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(cut)?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let body = &bytes[end + 4..];
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or_else(cut)?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut answer = Self { status, headers, body: Value::Null };
        let told: Option<usize> = answer.header("content-length").and_then(|length| length.parse().ok());
        // A node that was killed in the middle of its answer has not answered.
        if told.is_some_and(|told| told != body.len()) {
            return Err(cut());
        }
        if !body.is_empty() {
            answer.body = serde_json::from_slice(body).map_err(io::Error::other)?;
        }
        Ok(answer)
    }

    /// A header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// All that came back but the time of day, to be compared with another answer.
    pub fn whole(&self) -> (u16, Vec<(String, String)>, Value) {
        let timeless = self.headers.iter().filter(|(name, _)| name != "date").cloned();
        (self.status, timeless.collect(), self.body.clone())
    }

    /// The code of a refusal; empty when the answer was yes.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    /// The words of a refusal.
    pub fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }

    /// The facts of a refusal.
    pub fn details(&self) -> &Value {
        &self.body["error"]["details"]
    }

    /// Panics unless the answer was yes, with this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    /// Panics unless the answer was no, with this code under its status of SPEC §11 and words that say something.
    #[track_caller]
    pub fn refused(self, code: &str, status: u16) -> Self {
        assert_eq!((self.code(), self.status), (code, status), "{}", self.body);
        assert!(!self.message().is_empty(), "{}", self.body);
        self
    }
}
