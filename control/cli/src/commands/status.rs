//! Formatting of the daemon's status.

use std::fmt::Write;

use api::{
    ByteSize, CpuLatencyStatus, DamageStatus, DurabilityStatus, EncryptionStatus, ImagesStatus,
    JournalStatus, PoolStatus, Status, StoreServerStatus, counted,
};

use super::{lines_of, or_dash, ratio_text, time_text, word_of};

const CANNOT_FAIL: &str = "text can always grow";

/// Widest name of a line: the values of all parts stand in one column.
const WIDEST: &str = "sum of volume sizes";

/// Formats the daemon's status.
pub(super) fn text(status: &Status) -> String {
    let pool = &status.pool;
    let percent = pool.used_bytes.saturating_mul(100) / pool.size_bytes.max(1);
    let size = |bytes| ByteSize(bytes).rounded();
    let nbd = status.exports.nbd.as_ref().map_or_else(
        || "off".to_owned(),
        |nbd| {
            let tcp = nbd.tcp.as_ref().map(|tcp| format!(", {tcp}")).unwrap_or_default();
            format!("{}{tcp}, {}", nbd.socket, counted(nbd.connections, "connection"))
        },
    );
    let (ring, devices) = (&status.exports.ring, status.exports.fuse.as_ref());
    let disks = &status.exports.vhost_user;
    let ublk = status.exports.ublk.as_ref();
    let mut text = lines(&[
        ("daemon", format!("{}, pid {}", status.version, status.pid)),
        ("up", format!("{} s, run {}", status.uptime_seconds, status.run_epoch)),
        ("recovery", word_of(&status.recovery)),
        ("volumes", status.volume_count.to_string()),
        ("snapshots", status.snapshot_count.to_string()),
        ("attached", format!("{}, snapshots included", status.attachment_count)),
        ("pool", format!("{} in {}", size(pool.size_bytes), pool.path)),
        ("used", format!("{} ({percent} %)", size(pool.used_bytes))),
        ("  pages", format!("{} in {}", pool.page_count, size(pool.page_bytes))),
        ("  maps", size(pool.map_bytes)),
        ("  index", size(pool.index_bytes)),
        ("  tables", size(pool.table_bytes)),
        ("  slack", size(pool.slack_bytes)),
        ("free", size(pool.free_bytes)),
        (WIDEST, provisioned_text(pool)),
        ("written", format!("{} (fill: {})", size(pool.written_bytes), size(pool.fill_bytes))),
        ("to be compressed", size(pool.pending_bytes)),
        ("idle", idle_text(pool)),
        ("overwrites", overwrites_text(pool)),
        ("ratio", ratio_text(pool.ratio)),
        ("NBD", nbd),
        ("ring", format!("{}, {}", ring.socket, counted(ring.clients, "client"))),
        ("devices", devices.map_or_else(|| "off".to_owned(), |it| it.mount_point.clone())),
        (
            "vhost-user disks",
            format!("{}, {} in use, in {}", disks.exports, disks.connected, disks.folder),
        ),
        ("ublk", ublk.map_or_else(|| "off".to_owned(), |it| counted(it.device_count, "device"))),
        ("CPU latency", cpu_latency_text(&status.cpu_latency)),
    ]);
    if let Some(standby) = &status.standby {
        write!(text, "\n{}", super::standby::text(standby)).expect(CANNOT_FAIL);
    }
    if let Some(server) = &status.store_server {
        write!(text, "\n{}", store_server_text(server)).expect(CANNOT_FAIL);
    }
    write!(text, "\n{}", durability_text(&status.durability)).expect(CANNOT_FAIL);
    if !status.damage.lost.is_empty() || status.damage.withheld_bytes > 0 {
        write!(text, "\n{}", damage_text(&status.damage)).expect(CANNOT_FAIL);
    }
    for warning in &status.warnings {
        write!(text, "\nwarning: {}", warning.message).expect(CANNOT_FAIL);
    }
    text
}

/// Formats the served image store and its clients.
fn store_server_text(server: &StoreServerStatus) -> String {
    let size = |bytes| ByteSize(bytes).rounded();
    let limit = match (server.max_bytes, server.used_bytes) {
        (Some(max), Some(used)) => format!(", {} of {}", size(used), size(max)),
        (Some(max), None) => format!(", at most {}", size(max)),
        (None, _) => String::new(),
    };
    let served = format!("{} on {}{limit}", server.directory, server.address);
    let mut fields = vec![("served store", served)];
    fields.extend(server.clients.iter().map(|client| {
        let last = client.last_request_unix_seconds.map_or_else(|| "never".to_owned(), time_text);
        let text = format!(
            "{} at {}, {}, {} stored, {} read, last request {last}",
            client.name,
            client.address,
            counted(client.connections, "connection"),
            size(client.received_bytes),
            size(client.sent_bytes)
        );
        ("  client", text)
    }));
    if server.refused > 0 {
        fields.push(("  refused", counted(server.refused, "connection")));
    }
    lines(&fields)
}

fn idle_text(pool: &PoolStatus) -> String {
    let saved = ByteSize(pool.idle_saved_bytes).rounded();
    format!("{}, {saved} saved", counted(pool.idle_page_count, "page"))
}

/// Formats the sum of the volumes' sizes, relative to the pool.
fn provisioned_text(pool: &PoolStatus) -> String {
    let size = ByteSize(pool.provisioned_bytes).rounded();
    let times = pool.provisioned_bytes as f64 / pool.size_bytes.max(1) as f64;
    format!("{size}, {times:.1} times the pool")
}

/// Formats lost data and unusable memory.
fn damage_text(damage: &DamageStatus) -> String {
    let size = |bytes| ByteSize(bytes).rounded();
    let lost = damage.lost.iter().map(|it| format!("{} of {}", size(it.bytes), it.name));
    let lost = lost.collect::<Vec<_>>().join(", ");
    lines(&[
        ("lost", if lost.is_empty() { "nothing".to_owned() } else { lost }),
        ("damaged memory", size(damage.withheld_bytes)),
    ])
}

/// Formats whether all stored data can be overwritten.
fn overwrites_text(pool: &PoolStatus) -> String {
    let size = |bytes| ByteSize(bytes).rounded();
    let (need, room) = (pool.overwrite_need_bytes, pool.overwrite_room_bytes);
    let verdict = if need <= room { "never fail" } else { "may fail" };
    format!("{verdict}: worst case {}, available {}", size(need), size(room))
}

fn cpu_latency_text(status: &CpuLatencyStatus) -> String {
    let reason = status.reason.as_ref().map(|reason| format!(": {reason}"));
    word_of(&status.state) + &reason.unwrap_or_default()
}

/// Formats the data at risk in a power loss, and the state of journal and images.
fn durability_text(status: &DurabilityStatus) -> String {
    let size = |bytes| ByteSize(bytes).rounded();
    let at_risk = status.at_risk;
    let mut fields = vec![
        ("lost at power loss", String::new()),
        ("  of class ram", size(at_risk.ram_bytes)),
        ("  of class image", size(at_risk.image_bytes)),
        ("  of class journal", size(at_risk.journal_bytes)),
    ];
    if let Some(hold_up) = &status.hold_up {
        let seconds = hold_up.seconds;
        let rate = size(hold_up.bytes_per_second);
        let text = format!("{seconds:.1} s for {} at {rate}/s", size(hold_up.bytes));
        fields.push(("to save an image", text));
    }
    if let Some(journal) = &status.journal {
        fields.push(("journal", journal_text(journal)));
    }
    if let Some(images) = &status.images {
        fields.push(("images", images_text(images)));
    }
    fields.push(("encryption", encryption_text(status.encryption.as_ref())));
    lines(&fields)
}

/// Formats the encryption of journal and images, with key ids.
pub(super) fn encryption_text(status: Option<&EncryptionStatus>) -> String {
    let Some(EncryptionStatus { data_key, wrapped_by, .. }) = status else {
        return "off: journal and images are not encrypted".to_owned();
    };
    let text = format!("data key {data_key}, wrapped by {wrapped_by}");
    match status.and_then(previous_key) {
        Some(old) => format!("{text}; newest image still wrapped by the previous key {old}"),
        None => text,
    }
}

/// Id of the previous key, while the newest image is wrapped by it.
pub(super) fn previous_key(status: &EncryptionStatus) -> Option<&str> {
    status.images_wrapped_by.as_deref().filter(|&id| id != status.wrapped_by)
}

fn journal_text(journal: &JournalStatus) -> String {
    let cause = journal.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
    format!(
        "{}{cause}, {} of {} in {}",
        word_of(&journal.state),
        ByteSize(journal.used_bytes).rounded(),
        ByteSize(journal.max_bytes).rounded(),
        journal.dir
    )
}

fn images_text(images: &ImagesStatus) -> String {
    let last = images.last_image.map(|number| {
        let saved = images.last_saved_unix_seconds.map_or_else(|| "-".to_owned(), time_text);
        format!("image {number} of {saved}")
    });
    let mut text = format!("{} in {}", or_dash(last), images.store);
    if images.to_fetch_bytes > 0 {
        write!(text, ", {} to fetch", ByteSize(images.to_fetch_bytes).rounded())
            .expect(CANNOT_FAIL);
    }
    if images.unfetched_bytes > 0 {
        let bytes = ByteSize(images.unfetched_bytes).rounded();
        write!(text, ", {bytes} of it unavailable now").expect(CANNOT_FAIL);
    }
    if let Some(failure) = &images.failure {
        write!(text, "; the last save failed: {failure}").expect(CANNOT_FAIL);
    }
    text
}

fn lines(fields: &[(&str, String)]) -> String {
    lines_of(fields, WIDEST.len())
}

#[cfg(test)]
mod tests {
    use api::AtRisk;

    use super::*;

    #[test]
    fn the_values_of_all_parts_stand_in_one_column() {
        let status = DurabilityStatus {
            at_risk: AtRisk::default(),
            hold_up: None,
            encryption: None,
            journal: None,
            images: None,
        };
        let text = durability_text(&status);
        let columns: Vec<_> = text.lines().filter_map(|it| it.find("0 B")).collect();
        assert_eq!(columns, [WIDEST.len() + 2; 3], "{text}");
    }
}
