//! Metrics in Prometheus text format, in base units. Each family has HELP and TYPE.

use api::{CpuLatencyState, DurabilityStatus, JournalState, JournalStatus, RecoveryState};

use export_kit::{Status, Traffic};
use metrics_text::{Histogram, Kind, Page};
use volumes::Durability;

use crate::exports::{BOUNDS_US, Latencies, TIMED_ONE_IN, Timed, VolumeTraffic};
use crate::process_usage::ProcessUsage;
use crate::service::Metrics;

/// Formats all metrics.
pub(super) fn write(metrics: &Metrics) -> String {
    let mut page = Page::default();
    write_daemon(&mut page, metrics);
    write_pool(&mut page, &metrics.status.pool);
    write_limits(&mut page, &metrics.pool);
    write_durability(&mut page, &metrics.status.durability);
    let images = metrics.status.durability.images.as_ref();
    write_shipping(&mut page, images.and_then(|images| images.shipping.as_ref()));
    write_mirror(&mut page, images.and_then(|images| images.mirror.as_ref()));
    write_standby(&mut page, metrics.status.standby.as_ref());
    write_store_server(&mut page, metrics.status.store_server.as_ref());
    write_certificates(&mut page, &metrics.status.certificates);
    write_volumes(&mut page, &metrics.volumes);
    write_volume_traffic(&mut page, &metrics.volumes);
    write_latencies(&mut page, &metrics.latencies);
    write_nbd(&mut page, metrics);
    write_ring(&mut page, &metrics.ring);
    write_vhost_user(&mut page, metrics);
    write_devices(&mut page, metrics);
    if let Some(usage) = ProcessUsage::now() {
        write_process(&mut page, &usage);
    }
    page.into_text()
}

fn write_daemon(page: &mut Page, metrics: &Metrics) {
    let status = &metrics.status;
    page.family("memlane_build_info", Kind::Gauge, "Always 1; the version is in the label.");
    page.sample(&[("version", &status.version)], 1);
    page.gauge("memlane_uptime_seconds", "Time since the daemon started.", status.uptime_seconds);
    page.gauge("memlane_run_epoch", "Number of times the pool was opened.", status.run_epoch);
    let is_sweeping = u8::from(status.recovery == RecoveryState::Sweeping);
    page.gauge(
        "memlane_recovery_running",
        "1 while the search for leaked pages runs.",
        is_sweeping,
    );
    page.gauge("memlane_volumes", "Volumes in the pool.", status.volume_count);
    page.gauge("memlane_attachments", "Volumes attached to this host.", status.attachment_count);
    page.gauge("memlane_damaged_blocks", "Blocks lost to damage.", metrics.damaged_entries);
    write_damage(page, &metrics.status.damage);
    let is_low = u8::from(status.cpu_latency.state == CpuLatencyState::Low);
    page.gauge(
        "memlane_cpu_latency_low",
        "1 while the daemon holds a PM QoS latency request.",
        is_low,
    );
    page.gauge("memlane_warnings", "Warnings in the status.", status.warnings.len());
    page.gauge("memlane_snapshots", "Snapshots in the pool.", status.snapshot_count);
    page.gauge("memlane_tasks", "Running tasks.", status.task_count);
    page.counter("memlane_events_total", "Events since the daemon started.", metrics.event_count);
}

/// Metrics of journal shipping, if it is configured.
fn write_shipping(page: &mut Page, shipping: Option<&api::ShippingStatus>) {
    let Some(shipping) = shipping else { return };
    let is_failing = u8::from(shipping.failure.is_some());
    page.gauge("memlane_shipping_failing", "1 while the journal cannot be shipped.", is_failing);
    if let Some(seconds) = shipping.lag_seconds {
        let help = "Time since all of the journal was in the image store.";
        page.gauge("memlane_shipping_lag_seconds", help, seconds);
    }
    let help = "Bytes of the journal that are not in the image store yet.";
    page.gauge("memlane_shipping_lag_bytes", help, shipping.lag_bytes);
}

/// Metrics of mirrored flushes, if they are configured.
fn write_mirror(page: &mut Page, mirror: Option<&api::MirrorStatus>) {
    let Some(mirror) = mirror else { return };
    let is_degraded = u8::from(mirror.state != api::MirrorState::InSync);
    let help = "1 while mirrored flushes wait for the image store, go without it, or fail.";
    page.gauge("memlane_mirror_degraded", help, is_degraded);
    let help = "1 while flushes are acknowledged without the image store.";
    let is_alone = matches!(mirror.state, api::MirrorState::Alone | api::MirrorState::CatchingUp);
    page.gauge("memlane_mirror_alone", help, u8::from(is_alone));
    let help = "Flushes and changes of volumes that wait for the image store.";
    page.gauge("memlane_mirror_waiting", help, mirror.waiting);
    let help = "Flushes and changes of volumes that failed because the image store did not answer.";
    page.counter("memlane_mirror_failed_total", help, mirror.failed);
    let help = "Flushes and changes of volumes acknowledged without the image store.";
    page.counter("memlane_mirror_alone_total", help, mirror.acknowledged_alone);
}

/// Metrics of a standby; the first is also reported by a daemon that is no standby.
fn write_standby(page: &mut Page, standby: Option<&api::Standby>) {
    page.gauge("memlane_standby", "1 while the daemon is a standby.", u8::from(standby.is_some()));
    let Some(standby) = standby else { return };
    let is_failing = u8::from(standby.state == api::StandbyState::Failing);
    page.gauge("memlane_standby_failing", "1 while the store cannot be followed.", is_failing);
    if let Some(seconds) = standby.lag_seconds {
        let help = "Time since the newest image was saved: writes that would be lost.";
        page.gauge("memlane_standby_lag_seconds", help, seconds);
    }
    if let Some(seconds) = standby.journal_lag_seconds {
        let help = "Time since the journal was last shipped: flushes that would be lost.";
        page.gauge("memlane_standby_journal_lag_seconds", help, seconds);
    }
    let help = "Bytes of the newest image that are not in memory yet.";
    page.gauge("memlane_standby_lag_bytes", help, standby.lag_bytes);
    let help = "Number of the image that clients read; 0 before the first.";
    page.gauge("memlane_standby_image", help, standby.image.unwrap_or(0));
}

/// Expiry of the certificates that the daemon uses, if it uses any.
fn write_certificates(page: &mut Page, certificates: &[api::Certificate]) {
    if certificates.is_empty() {
        return;
    }
    let help = "Time at which a certificate that the daemon uses expires, in seconds since 1970.";
    page.family("memlane_certificate_expiry_timestamp_seconds", Kind::Gauge, help);
    for certificate in certificates {
        let labels = [("used_for", &*certificate.used_for), ("file", &*certificate.file)];
        page.sample(&labels, certificate.expires_unix_seconds);
    }
}

/// Metrics of the served image store, if there is one.
fn write_store_server(page: &mut Page, server: Option<&api::StoreServerStatus>) {
    let Some(server) = server else { return };
    let sum = |value: fn(&api::StoreClient) -> u64| server.clients.iter().map(value).sum::<u64>();
    let help = "Open connections to the served image store.";
    page.gauge("memlane_store_server_connections", help, sum(|client| client.connections));
    let help = "Connections to the served image store that were refused.";
    page.counter("memlane_store_server_refused_total", help, server.refused);
    let help = "Requests to the served image store.";
    page.counter("memlane_store_server_requests_total", help, sum(|client| client.requests));
    let help = "Bytes that clients stored in the served image store.";
    let received = sum(|client| client.received_bytes);
    page.counter("memlane_store_server_received_bytes_total", help, received);
    let help = "Bytes that clients read from the served image store.";
    page.counter("memlane_store_server_sent_bytes_total", help, sum(|client| client.sent_bytes));
}

fn write_damage(page: &mut Page, damage: &api::DamageStatus) {
    let lost_bytes: u64 = damage.lost.iter().map(|lost| lost.bytes).sum();
    page.gauge(
        "memlane_lost_bytes",
        "Bytes of volumes and snapshots that are lost; reads of them fail.",
        lost_bytes,
    );
    page.gauge(
        "memlane_withheld_bytes",
        "Memory of the pool that is retired because it was damaged.",
        damage.withheld_bytes,
    );
}

fn write_pool(page: &mut Page, pool: &api::PoolStatus) {
    page.gauge("memlane_pool_size_bytes", "Size of the pool.", pool.size_bytes);
    page.family(
        "memlane_pool_used_bytes",
        Kind::Gauge,
        "Memory of the pool in use, by its contents.",
    );
    for (holds, bytes) in [
        ("pages", pool.page_bytes),
        ("maps", pool.map_bytes),
        ("index", pool.index_bytes),
        ("tables", pool.table_bytes),
        ("slack", pool.slack_bytes),
    ] {
        page.sample(&[("holds", holds)], bytes);
    }
    page.gauge("memlane_pool_free_bytes", "Free memory of the pool.", pool.free_bytes);
    page.gauge(
        "memlane_pool_provisioned_bytes",
        "Sum of the sizes of all volumes, except those of a broker.",
        pool.provisioned_bytes,
    );
    page.gauge(
        "memlane_pool_written_bytes",
        "Bytes written to volumes and not discarded.",
        pool.written_bytes,
    );
    page.gauge(
        "memlane_pool_fill_bytes",
        "Written bytes stored as fill patterns, which take no page.",
        pool.fill_bytes,
    );
    page.gauge(
        "memlane_pool_pending_bytes",
        "Written bytes waiting to be compressed.",
        pool.pending_bytes,
    );
    page.gauge("memlane_pool_pages", "Stored pages.", pool.page_count);
    page.gauge(
        "memlane_pool_idle_pages",
        "Pages that were idle and are compressed with zstd.",
        pool.idle_page_count,
    );
    page.gauge(
        "memlane_pool_idle_saved_bytes",
        "Memory that the compression of idle pages saves.",
        pool.idle_saved_bytes,
    );
    page.gauge(
        "memlane_pool_overwrite_need_bytes",
        "Memory that overwriting all stored blocks could need, beyond the memory that it frees.",
        pool.overwrite_need_bytes,
    );
    page.gauge(
        "memlane_pool_overwrite_room_bytes",
        "Memory available for overwrites.",
        pool.overwrite_room_bytes,
    );
}

fn write_limits(page: &mut Page, pool: &api::Pool) {
    page.gauge(
        "memlane_pool_capacity_bytes",
        "Size to which the pool can grow while in use.",
        pool.capacity_bytes,
    );
    page.gauge(
        "memlane_pool_guaranteed_bytes",
        "Memory reserved for guaranteed volumes and not used yet.",
        pool.guaranteed_bytes,
    );
    page.gauge("memlane_daemon_bytes", "Memory of the daemon outside the pool.", pool.daemon_bytes);
    let until_full = pool.forecast.as_ref().map_or(f64::INFINITY, |it| it.full_in_seconds as f64);
    page.gauge(
        "memlane_pool_full_in_seconds",
        "Time until the pool is full at the present rate; infinite if it does not fill.",
        if until_full.is_finite() { until_full.to_string() } else { "+Inf".to_owned() },
    );
}

fn write_durability(page: &mut Page, durability: &DurabilityStatus) {
    page.family(
        "memlane_at_risk_bytes",
        Kind::Gauge,
        "Bytes that a loss of power would lose now, by durability class.",
    );
    let at_risk = durability.at_risk;
    for (class, bytes) in [
        ("ram", at_risk.ram_bytes),
        ("image", at_risk.image_bytes),
        ("journal", at_risk.journal_bytes),
    ] {
        page.sample(&[("durability", class)], bytes);
    }
    if let Some(hold_up) = &durability.hold_up {
        page.gauge(
            "memlane_hold_up_seconds",
            "Time that saving an image of the changes since the last one would take.",
            hold_up.seconds,
        );
    }
    if let Some(journal) = &durability.journal {
        write_journal(page, journal);
    }
    if let Some(images) = &durability.images {
        let number = images.last_image.unwrap_or(0);
        page.gauge("memlane_image_number", "Number of the newest image; 0 for none.", number);
        let saved = images.last_saved_unix_seconds.unwrap_or(0);
        page.gauge(
            "memlane_image_saved_timestamp_seconds",
            "Unix time at which the newest image was saved.",
            saved,
        );
        let failed = u8::from(images.failure.is_some());
        page.gauge("memlane_image_failed", "1 if the last save of an image failed.", failed);
        page.gauge(
            "memlane_image_to_fetch_bytes",
            "Bytes of restored volumes not fetched yet.",
            images.to_fetch_bytes,
        );
        page.gauge(
            "memlane_image_unfetched_bytes",
            "Bytes of restored volumes whose last fetch failed.",
            images.unfetched_bytes,
        );
    }
}

fn write_journal(page: &mut Page, journal: &JournalStatus) {
    let is_ok = u8::from(journal.state == JournalState::Ok);
    page.gauge("memlane_journal_ok", "1 while flushes to the journal succeed.", is_ok);
    page.gauge("memlane_journal_used_bytes", "Space that the journal uses.", journal.used_bytes);
    page.gauge(
        "memlane_journal_max_bytes",
        "Maximum size of the journal (max-bytes).",
        journal.max_bytes,
    );
    page.counter(
        "memlane_journal_transactions_total",
        "Transactions written to the journal; one serves all flushes that wait for it.",
        journal.transactions,
    );
    page.counter(
        "memlane_journal_flushes_total",
        "Flushes of volumes of class journal.",
        journal.flushes,
    );
}

fn write_volumes(page: &mut Page, volumes: &[(api::Volume, VolumeTraffic)]) {
    type Value = fn(&api::Volume) -> u64;
    let families: [(&str, &str, Value); 6] = [
        ("memlane_volume_size_bytes", "Size of the volume.", |it| it.size_bytes),
        ("memlane_volume_written_bytes", "Bytes written and not discarded.", |it| it.written_bytes),
        ("memlane_volume_fill_bytes", "Written bytes stored as fill patterns.", |it| it.fill_bytes),
        ("memlane_volume_ram_bytes", "Memory that the volume uses.", |it| it.ram_bytes),
        ("memlane_volume_nbd_connections", "Open NBD connections.", |it| it.nbd_connections),
        ("memlane_volume_ring_clients", "Clients of the ring.", |it| it.ring_clients),
    ];
    for (name, help, value) in families {
        page.family(name, Kind::Gauge, help);
        for (volume, _) in volumes {
            page.sample(&[("volume", &volume.name)], value(volume));
        }
    }
    page.family(
        "memlane_volume_attached",
        Kind::Gauge,
        "1 if the volume is attached as a block device.",
    );
    for (volume, _) in volumes {
        page.sample(&[("volume", &volume.name)], u8::from(volume.device.is_some()));
    }
}

fn write_volume_traffic(page: &mut Page, volumes: &[(api::Volume, VolumeTraffic)]) {
    let help = "Requests for the volume through all exports, by kind.";
    page.family("memlane_volume_requests_total", Kind::Counter, help);
    for (volume, traffic) in volumes {
        for (kind, count) in [
            ("read", traffic.reads),
            ("write", traffic.writes),
            ("flush", traffic.flushes),
            ("discard", traffic.discards),
        ] {
            page.sample(&[("volume", &volume.name), ("kind", kind)], count);
        }
    }
    page.family("memlane_volume_read_bytes_total", Kind::Counter, "Bytes read.");
    for (volume, traffic) in volumes {
        page.sample(&[("volume", &volume.name)], traffic.read_bytes);
    }
    page.family("memlane_volume_write_bytes_total", Kind::Counter, "Bytes written by clients.");
    for (volume, traffic) in volumes {
        page.sample(&[("volume", &volume.name)], traffic.written_bytes);
    }
}

/// Latency histograms by durability class and operation. Their number does not depend on the number
/// of volumes.
fn write_latencies(page: &mut Page, latencies: &Latencies) {
    let help = format!(
        "Duration of requests inside volumes, without the transport to the client; one in \
         {TIMED_ONE_IN} reads and writes of each thread is timed, and each flush."
    );
    page.family("memlane_request_seconds", Kind::Histogram, &help);
    let bounds = BOUNDS_US.map(|bound_us| bound_us as f64 / 1e6);
    for class in Durability::ALL {
        for timed in Timed::ALL {
            let seen = latencies.seen(class, timed);
            let sum = seen.sum_ns as f64 / 1e9;
            let histogram = Histogram { bounds: &bounds, counts: &seen.counts, sum };
            page.histogram(&[("durability", class.name()), ("kind", timed.name())], &histogram);
        }
    }
}

/// Process metrics under the standard names of Prometheus clients.
fn write_process(page: &mut Page, usage: &ProcessUsage) {
    page.counter("process_cpu_seconds_total", "User and system CPU time.", usage.cpu_seconds);
    let help = "Resident memory, including the touched part of the pool.";
    page.gauge("process_resident_memory_bytes", help, usage.resident_bytes);
    page.gauge("process_open_fds", "Open file descriptors.", usage.open_files);
    page.gauge("process_max_fds", "Maximum number of open file descriptors.", usage.open_files_max);
    page.gauge("process_threads", "Threads.", usage.threads);
    let help = "Unix time at which the process started.";
    page.gauge("process_start_time_seconds", help, usage.started_unix_seconds);
}

fn write_nbd(page: &mut Page, metrics: &Metrics) {
    let Some(nbd) = &metrics.nbd else { return };
    page.gauge("memlane_nbd_connections", "Open connections.", nbd.client_count());
    page.counter("memlane_nbd_accepted_total", "Connections accepted.", nbd.accepted);
    page.counter(
        "memlane_nbd_refused_total",
        "Connections refused because there were too many.",
        nbd.refused,
    );
    let kinds = [
        ("trim", nbd.traffic.discards),
        ("write_zeroes", nbd.traffic.zeroes),
        ("block_status", nbd.traffic.block_statuses),
    ];
    page.family("memlane_nbd_requests_total", Kind::Counter, "Requests, by kind.");
    write_traffic(page, "nbd", &nbd.traffic, &kinds);
}

fn write_ring(page: &mut Page, ring: &Status<u64>) {
    page.gauge("memlane_ring_clients", "Clients of the ring.", ring.client_count());
    page.counter("memlane_ring_accepted_total", "Clients accepted.", ring.accepted);
    page.counter(
        "memlane_ring_refused_total",
        "Clients refused because there were too many.",
        ring.refused,
    );
    let kinds = [("discard", ring.traffic.discards), ("write_zeroes", ring.traffic.zeroes)];
    page.family("memlane_ring_requests_total", Kind::Counter, "Requests, by kind.");
    write_traffic(page, "ring", &ring.traffic, &kinds);
    page.counter(
        "memlane_ring_doorbells_total",
        "Requests that had to wake a sleeping thread of the daemon.",
        ring.traffic.doorbells,
    );
}

fn write_vhost_user(page: &mut Page, metrics: &Metrics) {
    let disks = metrics.vhost_user;
    page.gauge(
        "memlane_vhost_user_exports",
        "Volumes exported as disks of virtual machines.",
        disks.exports,
    );
    page.gauge(
        "memlane_vhost_user_connected",
        "Disks of virtual machines in use.",
        disks.connected,
    );
    let traffic = disks.traffic;
    let name = "memlane_vhost_user_requests_total";
    page.family(name, Kind::Counter, "Requests of virtual machines, by kind.");
    let kinds = [("discard", traffic.discards), ("write_zeroes", traffic.zeroes)];
    write_traffic(page, "vhost_user", &traffic, &kinds);
    page.counter(
        "memlane_vhost_user_repeated_total",
        "Requests repeated after an earlier daemon died.",
        traffic.repeated,
    );
}

fn write_devices(page: &mut Page, metrics: &Metrics) {
    let Some(traffic) = metrics.devices else { return };
    let kinds = [("zero", traffic.discards + traffic.zeroes), ("other", traffic.others)];
    let help = "Requests of kernel block devices, by kind.";
    page.family("memlane_device_requests_total", Kind::Counter, help);
    write_traffic(page, "device", &traffic, &kinds);
}

/// Metrics common to all exports: request counts, with `kinds` as additional operations of this
/// export, then errors and bytes.
fn write_traffic(page: &mut Page, export: &str, traffic: &Traffic, kinds: &[(&str, u64)]) {
    let of_all = [("read", traffic.reads), ("write", traffic.writes), ("flush", traffic.flushes)];
    for (kind, count) in of_all.iter().chain(kinds) {
        page.sample(&[("kind", kind)], count);
    }
    for (what, help, count) in [
        ("errors", "Requests that failed.", traffic.errors),
        ("read_bytes", "Bytes read.", traffic.read_bytes),
        ("written_bytes", "Bytes written.", traffic.written_bytes),
    ] {
        page.counter(&format!("memlane_{export}_{what}_total"), help, count);
    }
}
