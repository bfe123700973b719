//! `berth lease exec`: a tool at the device of a lease, as if it ran here (SPEC §7). What it writes, reads and ends with is
//! its own; signals that come to this process go to it.
//!
//! The tool ends with this process. Output that nobody takes makes it wait.

use std::io::{self, Read, Write};

use bytes::Bytes;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::failure::Lost;
use super::lease_args::fence;
use super::output::Output;
use crate::client::{Client, ClientError, ExecInput, ExecNews, ExecOutput};
use crate::limits::{EXEC_CHUNK_BYTES_MAX, EXEC_WINDOW_BYTES};
use crate::model::{Code, ExecSignal, Fence, LeaseId, ToolArgs, ToolName};
use crate::service::exec::ExecBody;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  berth lease exec ad-7f3a -- adb shell getprop ro.product.model
  berth lease exec ad-7f3a -- adb install - < app.apk

The tool runs on the machine that owns the device. Its operator says which there are: [exec.allow] of the lab file.")]
pub(super) struct LeaseExecArgs {
    /// Under which lease
    #[arg(value_name = "ID")]
    lease: LeaseId,
    /// Only if it is still the grant with this fence
    #[arg(long, value_parser = fence)]
    fence: Option<Fence>,
    /// Which tool
    #[arg(last = true, required = true, num_args = 1.., value_names = ["TOOL", "ARGS"])]
    tool: Vec<String>,
}

impl LeaseExecArgs {
    fn body(&self) -> Result<ExecBody, super::failure::Misuse> {
        let misuse = |why: String| super::failure::Misuse(why);
        let (tool, args) = self.tool.split_first().ok_or_else(|| misuse("name a tool behind --".to_owned()))?;
        let tool: ToolName = tool.parse().map_err(|error| misuse(format!("{error}")))?;
        let args = ToolArgs::try_from(args.to_vec()).map_err(|error| misuse(error.to_string()))?;
        Ok(ExecBody { tool, args, fence: self.fence })
    }
}

/// Runs the tool to its end, and says with what the process ends.
///
/// # Errors
/// It was refused, or ended by something other than itself; the reader of its output has gone.
pub(super) async fn run(args: LeaseExecArgs, client: &Client, output: &mut Output<'_>) -> anyhow::Result<u8> {
    let body = args.body()?;
    // Before the tool runs: from then on they are its own.
    let mut signals = Signals::listen()?;
    let (input, news) = client.exec(&args.lease, &body).await?;
    let (feed, fed) = mpsc::channel(1);
    std::thread::spawn(move || read_stdin(&feed));
    let feeding = tokio::spawn(pass_stdin(input.clone(), fed));
    let ended = tokio::select! {
        ended = show(input.clone(), news) => ended,
        never = pass_signals(&input, &mut signals) => match never {},
    };
    feeding.abort();
    match ended {
        Ok(code) => Ok(code),
        Err(Unshown::Client(ClientError::Refused(refusal))) if refusal.code == Code::UnknownLease => {
            Err(Lost { lease: args.lease, why: refusal.message }.into())
        }
        Err(Unshown::Client(error @ ClientError::Unanswered { .. })) => {
            output.talk(&format!("nobody knows how {} has ended; it is killed where it runs", body.tool));
            Err(error.into())
        }
        Err(Unshown::Client(error)) => Err(error.into()),
        Err(Unshown::Here(error)) => Err(error.into()),
    }
}

/// Why the end of the tool is not known.
enum Unshown {
    Client(ClientError),
    /// What it wrote could not be passed on.
    Here(io::Error),
}

/// Passes the output on to its end.
async fn show(input: ExecInput, mut news: ExecOutput) -> Result<u8, Unshown> {
    // No piece is empty, so as many fit as there are bytes in a window.
    let (pieces, queue) = mpsc::channel(EXEC_WINDOW_BYTES);
    let (written, mut shown) = mpsc::channel(1);
    std::thread::spawn(move || write_output(queue, &written));
    let code = loop {
        let piece = tokio::select! {
            written = shown.recv() => match written {
                Some(Ok(bytes)) => {
                    input.ack(bytes).await;
                    continue;
                }
                Some(Err(error)) => return Err(Unshown::Here(error)),
                None => return Err(Unshown::Here(io::ErrorKind::BrokenPipe.into())),
            },
            piece = news.next() => piece.map_err(Unshown::Client),
        };
        // What has come before is shown, however it ends.
        match piece {
            Ok(ExecNews::Exit(code)) => break Ok(code),
            Ok(ExecNews::Stdout(bytes)) if bytes.is_empty() => {}
            Ok(ExecNews::Stderr(bytes)) if bytes.is_empty() => {}
            Ok(piece) => {
                if pieces.try_send(piece).is_err() {
                    break Err(Unshown::Here(io::Error::other("the node sent more than it may")));
                }
            }
            Err(error) => break Err(error),
        }
    };
    drop(pieces);
    while let Some(written) = shown.recv().await {
        written.map_err(Unshown::Here)?;
    }
    code
}

/// Writes what comes, and says how much of it is written. A thread of its own: whoever reads this process may be slow, and
/// the node is to hear of it meanwhile.
fn write_output(mut queue: mpsc::Receiver<ExecNews>, written: &mpsc::Sender<io::Result<usize>>) {
    let write =
        |mut to: Box<dyn Write>, bytes: &Bytes| to.write_all(bytes).and_then(|()| to.flush()).map(|()| bytes.len());
    while let Some(piece) = queue.blocking_recv() {
        let result = match &piece {
            ExecNews::Stdout(bytes) => write(Box::new(io::stdout().lock()), bytes),
            ExecNews::Stderr(bytes) => write(Box::new(io::stderr().lock()), bytes),
            ExecNews::Exit(_) => continue,
        };
        let failed = result.is_err();
        if written.blocking_send(result).is_err() || failed {
            return;
        }
    }
}

/// Reads stdin. A thread of its own: nothing interrupts a read, and the process ends without waiting for it.
fn read_stdin(feed: &mpsc::Sender<Vec<u8>>) {
    let mut buffer = vec![0; EXEC_CHUNK_BYTES_MAX];
    loop {
        match io::stdin().lock().read(&mut buffer) {
            Ok(bytes @ 1..) => {
                if feed.blocking_send(buffer[..bytes].to_vec()).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
        }
    }
}

async fn pass_stdin(input: ExecInput, mut fed: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = fed.recv().await {
        if !input.stdin(&bytes).await {
            return;
        }
    }
    input.eof().await;
}

/// The signals that are the tool's.
struct Signals([(ExecSignal, tokio::signal::unix::Signal); 4]);

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self([
            (ExecSignal::Int, signal(SignalKind::interrupt())?),
            (ExecSignal::Term, signal(SignalKind::terminate())?),
            (ExecSignal::Hup, signal(SignalKind::hangup())?),
            (ExecSignal::Quit, signal(SignalKind::quit())?),
        ]))
    }

    async fn next(&mut self) -> ExecSignal {
        let coming = self.0.iter_mut().map(|(name, signal)| {
            let name = *name;
            Box::pin(async move {
                signal.recv().await;
                name
            })
        });
        futures_util::future::select_all(coming).await.0
    }
}

async fn pass_signals(input: &ExecInput, signals: &mut Signals) -> std::convert::Infallible {
    loop {
        let signal = signals.next().await;
        input.signal(signal).await;
    }
}
