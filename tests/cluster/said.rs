//! What the nodes of a test log, as lines.
//!
//! The whole process has one subscriber, and each thread its own lines: a subscriber of one thread's alone misses what
//! another thread without one has logged first, because whether a place in the code is of interest is remembered for all.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Once;

use tracing::Dispatch;
use tracing::subscriber::{NoSubscriber, set_global_default};

thread_local! {
    static LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

static LISTENS: Once = Once::new();

/// The lines of this thread, which is that of the whole lab, as long as this lives.
pub struct Log(());

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| lines.as_mut().map_or(Ok(bytes.len()), |lines| lines.write(bytes)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Hears warnings from now on.
    pub fn warnings() -> Self {
        LISTENS.call_once(|| {
            let subscriber = tracing_subscriber::fmt()
                .with_max_level(tracing::Level::WARN)
                .with_ansi(false)
                .without_time()
                .with_writer(|| Lines)
                .finish();
            set_global_default(subscriber).expect("no other subscriber is for the whole process");
            // Whatever was logged for the first time before that is asked about anew when another one is made.
            drop(Dispatch::new(NoSubscriber::default()));
        });
        LINES.set(Some(Vec::new()));
        Self(())
    }

    /// True when one line has all these words.
    pub fn has(&self, words: &[&str]) -> bool {
        LINES.with_borrow(|lines| {
            let lines = lines.as_deref().unwrap_or_default();
            String::from_utf8_lossy(lines).lines().any(|line| words.iter().all(|word| line.contains(word)))
        })
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        LINES.set(None);
    }
}
