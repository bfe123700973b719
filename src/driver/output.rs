//! The end of what a hook writes.

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::model::OUTPUT_BYTES_MAX;

/// What is kept as it was written, in bytes. It is more than is shown, because control characters are left out of that.
const KEPT_BYTES_MAX: usize = 8 * OUTPUT_BYTES_MAX;
/// What is read at once, in bytes.
const READ_BYTES_MAX: usize = 64 * 1024;

/// A hook's output: all of it is read, the end is kept.
#[derive(Debug)]
pub(super) struct Output {
    pipe: pipe::Receiver,
    buffer: Vec<u8>,
    tail: Tail,
}

impl Output {
    pub(super) fn new(pipe: pipe::Receiver) -> Self {
        Self { pipe, buffer: vec![0; READ_BYTES_MAX], tail: Tail::default() }
    }

    /// Reads until nobody can write any more. May be dropped and called again at any time.
    pub(super) async fn read_on(&mut self) {
        // A pipe that cannot be read has no more to say.
        while let Ok(read @ 1..) = self.pipe.read(&mut self.buffer).await {
            self.tail.push(&self.buffer[..read]);
        }
    }

    /// The end of it, as people can read it: at most [`OUTPUT_BYTES_MAX`], without control characters but line ends and tabs.
    pub(super) fn end(&self) -> String {
        self.tail.shown()
    }
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
struct Tail {
    /// At most twice [`KEPT_BYTES_MAX`].
    bytes: Vec<u8>,
}

impl Tail {
    fn push(&mut self, more: &[u8]) {
        let more = &more[more.len().saturating_sub(KEPT_BYTES_MAX)..];
        if self.bytes.len() + more.len() > 2 * KEPT_BYTES_MAX {
            let surplus = self.bytes.len() - KEPT_BYTES_MAX;
            self.bytes.drain(..surplus);
        }
        self.bytes.extend_from_slice(more);
    }

    fn shown(&self) -> String {
        let kept = &self.bytes[self.bytes.len().saturating_sub(KEPT_BYTES_MAX)..];
        // Where something was cut off, that may have been within a character.
        let begin = kept.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
        let mut text = String::from_utf8_lossy(&kept[begin..]).into_owned();
        text.retain(|c| matches!(c, '\n' | '\t') || !c.is_control());
        let from = text.ceil_char_boundary(text.len().saturating_sub(OUTPUT_BYTES_MAX));
        text.split_off(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&[u8]]) -> String {
        let mut tail = Tail::default();
        for piece in pieces {
            tail.push(piece);
            assert!(tail.bytes.len() <= 2 * KEPT_BYTES_MAX);
        }
        let shown = tail.shown();
        assert!(shown.len() <= OUTPUT_BYTES_MAX);
        shown
    }

    #[test]
    fn the_end_is_shown_however_the_output_comes() {
        assert_eq!(shown(&[]), "");
        assert_eq!(shown(&[b"one\n", b"", b"two\n"]), "one\ntwo\n");
        let text: String = (0..100_000).map(|number| format!("{number} ")).collect();
        let expected = &text[text.len() - OUTPUT_BYTES_MAX..];
        assert_eq!(shown(&[text.as_bytes()]), expected);
        for size in [1, 7, 1000, KEPT_BYTES_MAX - 1, KEPT_BYTES_MAX, KEPT_BYTES_MAX + 1, 2 * KEPT_BYTES_MAX + 1] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            assert_eq!(shown(&pieces), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_left_out() {
        assert_eq!(shown(&[b"\x1b[31mred\x1b[0m\r\n\ttab \x07\x00\x7f\xc2\x9bend"]), "[31mred[0m\n\ttab end");
    }

    #[test]
    fn no_character_is_cut_in_two() {
        // Three bytes each, so that neither limit falls between two of them.
        let text = "€".repeat(KEPT_BYTES_MAX);
        let end = shown(&[text.as_bytes(), b"!"]);
        assert_eq!(end, format!("{}!", "€".repeat((OUTPUT_BYTES_MAX - 1) / 3)));
        // All but a few of what is kept are control characters, so the cut itself is seen.
        let mut bytes = "€".repeat(KEPT_BYTES_MAX).into_bytes();
        bytes.extend(vec![b'\r'; KEPT_BYTES_MAX - 4]);
        assert_eq!(shown(&[&bytes]), "€");
    }

    #[test]
    fn what_is_no_text_is_marked_and_still_bounded() {
        assert_eq!(shown(&[b"a\xffb"]), "a\u{fffd}b");
        assert_eq!(shown(&[&[0xff; 100_000]]), "\u{fffd}".repeat(OUTPUT_BYTES_MAX / 3));
    }
}
