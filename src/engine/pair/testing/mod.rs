//! The smallest server that can run a pair, and the recorded numbers it is compared with.

pub mod arms;
pub mod golden;
pub mod reference;
pub mod scattered;
