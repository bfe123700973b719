//! What the command line said.

/// How a command ended, and what it said.
#[derive(Debug)]
pub struct Said {
    pub exit: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Panics unless the command ended with 0; what it printed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.exit, 0, "{self:?}");
        self.out
    }

    /// Panics unless the command failed with this exit code, printing nothing but its reason; that.
    #[track_caller]
    pub fn failed(self, exit: i32) -> String {
        assert_eq!((self.exit, self.out.as_str()), (exit, ""), "{self:?}");
        self.err
    }
}
