//! Android devices, as a local adb server sees them (SPEC §7).
//!
//! A [`Watcher`] follows the servers and tells, for each resource, whether its device is there and what it is. Which device
//! stands for which resource is a rule of its own. What is done to a device, apart from a look at it, is done by programs.
//!
//! The server is asked over its documented protocol, the one that the `adb` program speaks with it. That program is needed
//! only where no server runs yet.

mod assignment;
mod check;
mod follower;
mod listing;
mod pauses;
mod properties;
mod serial;
mod server;
mod starting;
mod state;
mod view;
mod watcher;

pub(super) use self::check::check;
pub use self::serial::{InvalidSerial, Serial};
pub use self::starting::AdbProgram;
pub use self::watcher::Watcher;

/// The word for this driver in the identity of a device.
const DRIVER: &str = "adb";
