//! What is measured: volumes and what others offer, set up, filled and taken down; and fio on them.
#![forbid(unsafe_code)]
