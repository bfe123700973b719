//! One resource: what it grants, renews, releases and lets expire, and who is next.

mod asking;
mod device;
mod leases;
mod waking;
