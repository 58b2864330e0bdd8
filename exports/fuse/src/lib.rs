//! Volumes as files over /dev/fuse, and as loop devices on them.
#![forbid(unsafe_code)]
