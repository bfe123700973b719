//! Server-sent events, read line by line and bounded.

use std::time::Duration;

use reqwest::Response;

use super::{Client, ClientError};

/// The longest line, and the most data of one event. A lease with its note and its labels is far below.
const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// A node says something at least every 15 s; after three times as long it is taken for gone.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// Nothing came, although a node says at least that it is there.
#[derive(Debug, thiserror::Error)]
#[error("nothing was heard for {} s", .0.as_secs())]
pub(super) struct Silence(pub(super) Duration);

/// One event as it was sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) event: String,
    pub(super) data: String,
}

/// The events of one answer.
pub(super) struct Messages {
    client: Client,
    response: Response,
    /// What has come and is no whole line yet.
    pending: Vec<u8>,
    /// How much of that is known to have no line break.
    searched: usize,
    draft: Message,
    last_id: Option<u64>,
}

impl Messages {
    pub(super) fn new(client: Client, response: Response, last_id: Option<u64>) -> Self {
        Self { client, response, pending: Vec::new(), searched: 0, draft: Message::default(), last_id }
    }

    /// The number to resume after.
    pub(super) fn last_id(&self) -> Option<u64> {
        self.last_id
    }

    /// The next event; none when the node has ended the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, ClientError> {
        loop {
            while let Some(line) = self.line() {
                if let Some(message) = self.take(&line)? {
                    return Ok(Some(message));
                }
            }
            if self.pending.len() > EVENT_BYTES_MAX {
                return Err(self.too_large());
            }
            let chunk = tokio::time::timeout(SILENCE_MAX, self.response.chunk()).await;
            match chunk
                .map_err(|_| self.client.silent(SILENCE_MAX))?
                .map_err(|source| self.client.unanswered(source))?
            {
                Some(chunk) => self.pending.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }

    /// The next whole line, without its end.
    fn line(&mut self) -> Option<String> {
        let Some(found) = self.pending[self.searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = self.pending.len();
            return None;
        };
        let rest = self.pending.split_off(self.searched + found + 1);
        let line = std::mem::replace(&mut self.pending, rest);
        self.searched = 0;
        let text = String::from_utf8_lossy(&line);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        Some(text.strip_suffix('\r').unwrap_or(text).to_owned())
    }

    /// Adds a line to the event that is being read; an empty one ends it. An event without data is none, but its number
    /// counts.
    fn take(&mut self, line: &str) -> Result<Option<Message>, ClientError> {
        if line.is_empty() {
            let whole = std::mem::take(&mut self.draft);
            return Ok((!whole.data.is_empty()).then_some(whole));
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.draft.event = value.to_owned(),
            "id" => self.last_id = value.parse().ok().or(self.last_id),
            "data" => {
                if !self.draft.data.is_empty() {
                    self.draft.data.push('\n');
                }
                if self.draft.data.len() + value.len() > EVENT_BYTES_MAX {
                    return Err(self.too_large());
                }
                self.draft.data.push_str(value);
            }
            // A comment, or what a newer version says.
            _ => {}
        }
        Ok(None)
    }

    fn too_large(&self) -> ClientError {
        self.client.bad_answer(format_args!("one of its events is larger than {EVENT_BYTES_MAX} bytes"))
    }
}
