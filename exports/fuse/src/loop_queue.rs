//! Attributes of a loop device's queue, which sysfs has.

use std::fs;

use block_device::WriteCache;
use export_kit::{AttachError, AttachErrorKind};

/// Word of `queue/write_cache` of a block device, by which the kernel sends flushes or not.
pub(crate) fn cache_name(cache: WriteCache) -> &'static str {
    match cache {
        WriteCache::Volatile => "write back",
        WriteCache::Absent => "write through",
    }
}

/// Where a block device completes requests: `rq_affinity` in the kernel's
/// Documentation/ABI/stable/sysfs-block.
pub(crate) enum Completion {
    /// On any core that shares a cache: the kernel's default.
    NearTheCoreThatAsked,
    /// The serving thread's core would wake the thread that asked there, and both would then share
    /// that core while another one idles.
    OnTheCoreThatAsked,
}

pub(crate) fn set_completion(number: u32, completion: Completion) {
    let value = match completion {
        Completion::NearTheCoreThatAsked => "1",
        Completion::OnTheCoreThatAsked => "2",
    };
    set_queue_attribute(number, "rq_affinity", value);
}

/// Tells the kernel whether it must send flushes (Documentation/block/writeback_cache_control),
/// from the next request on. Fails when it would send none although it must.
pub(crate) fn set_write_cache(number: u32, mode: WriteCache) -> Result<(), AttachError> {
    let path = queue_attribute(number, "write_cache");
    let is_set = || fs::read_to_string(&path).is_ok_and(|now| now.trim() == cache_name(mode));
    if is_set() {
        return Ok(());
    }
    set_queue_attribute(number, "write_cache", cache_name(mode));
    if mode == WriteCache::Absent || is_set() {
        return Ok(());
    }
    Err(AttachError::new(
        AttachErrorKind::Kernel,
        format!("enable the write cache (flushes) of /dev/loop{number}"),
    )
    .with_hint(format!("\"{}\" cannot be written to {path}", cache_name(mode))))
}

/// Refused where sysfs is read-only: a device that was not told better is slower then, and nothing
/// else.
pub(crate) fn set_queue_attribute(number: u32, attribute: &str, value: &str) {
    let _refused = fs::write(queue_attribute(number, attribute), value);
}

fn queue_attribute(number: u32, attribute: &str) -> String {
    format!("/sys/block/loop{number}/queue/{attribute}")
}
