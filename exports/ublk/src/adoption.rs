//! Takeover of an earlier process's devices, and removal of incomplete ones.

use std::sync::Arc;
use std::thread;

use adaptive_polling::SpinPermits;
use block_device::BlockDevice;
use export_kit::AttachError;
use kernel::{UblkDevice, UblkState};

use crate::driver::Driver;
use crate::registry::Registry;
use crate::served::Served;
use crate::sysfs;
use crate::volumes::{VolumeId, Volumes};

/// Takes over each registered device whose volume exists, and deletes the other devices with this
/// registry's mark.
pub(crate) fn adopt_all(
    driver: &Driver,
    registry: &mut Registry,
    volumes: &dyn Volumes,
    permits: &Arc<SpinPermits>,
) -> Vec<(VolumeId, Served)> {
    let known = registry.devices();
    let mark = registry.mark();
    let adopted: Vec<_> = thread::scope(|scope| {
        // Concurrent, because each may have to wait for its last server to exit.
        let threads: Vec<_> = known
            .iter()
            .map(|&(id, volume)| {
                scope.spawn(move || (id, adopt(driver, id, mark, volumes.by_id(volume), permits)))
            })
            .collect();
        threads.into_iter().map(|it| it.join().expect("adopting does not panic")).collect()
    });
    let mut served = Vec::new();
    for ((id, adopted), (_, volume)) in adopted.into_iter().zip(known) {
        match adopted {
            Adopted::Served(device) => {
                tracing::info!(device = format!("/dev/ublkb{id}"), "device taken over");
                served.push((volume, device));
            }
            Adopted::Gone => {
                if let Err(error) = registry.remove(id) {
                    tracing::error!(id, %error, "cannot store the list of ublk devices");
                }
            }
            Adopted::Stuck(error) => {
                let error = error.chain();
                tracing::error!(id, error, "cannot take over a ublk device; leaving it as it is");
            }
        }
    }
    delete_remains(driver, registry, mark);
    served
}

/// Result of taking over a device.
enum Adopted {
    Served(Served),
    /// The device no longer exists, or has another owner.
    Gone,
    Stuck(AttachError),
}

fn adopt(
    driver: &Driver,
    id: u32,
    mark: u64,
    volume: Option<Arc<dyn BlockDevice>>,
    permits: &Arc<SpinPermits>,
) -> Adopted {
    let found = match driver.info(id) {
        // After a reboot another program may have created a device of this number.
        Ok(found) => found.filter(|device| device.owner_mark == mark),
        Err(error) => return Adopted::Stuck(error),
    };
    let Some(device) = found else { return Adopted::Gone };
    let taken_over = match (device.state, volume) {
        (UblkState::Dead, _) => driver.delete(id).map(|()| Adopted::Gone),
        (_, None) => {
            tracing::warn!(id, "deleting a ublk device whose volume no longer exists");
            driver.delete(id).map(|()| Adopted::Gone)
        }
        (_, Some(volume)) => take_over(driver, device, volume, permits).map(Adopted::Served),
    };
    taken_over.unwrap_or_else(Adopted::Stuck)
}

fn take_over(
    driver: &Driver,
    device: UblkDevice,
    volume: Arc<dyn BlockDevice>,
    permits: &Arc<SpinPermits>,
) -> Result<Served, AttachError> {
    let id = device.id;
    driver.start_recovery(id)?;
    let channel = driver.channel(device)?;
    let (cache, size_bytes) = (volume.write_cache(), volume.geometry().size_bytes);
    let served = Served::start(channel, device, volume, Arc::clone(permits))?;
    if let Err(error) = driver.end_recovery(id) {
        served.leave();
        return Err(error);
    }
    // Repeats the settings, because the last server may have been killed before it made them.
    sysfs::tune(id, device.queue_depth);
    if let Err(error) = sysfs::set_write_cache(id, cache) {
        served.leave();
        return Err(error);
    }
    if driver.can_resize() && sysfs::size_bytes(id).is_ok_and(|it| it != size_bytes) {
        driver.update_size(id, size_bytes).unwrap_or_else(|error| {
            let error = error.chain();
            tracing::warn!(id, error, "cannot resize a ublk device to its volume's size");
        });
    }
    Ok(served)
}

/// Deletes devices with this registry's mark that are not registered. They were created by a
/// process that was killed before it registered them.
fn delete_remains(driver: &Driver, registry: &Registry, mark: u64) {
    let known = registry.devices();
    let ids = sysfs::device_ids().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot list ublk devices left by a killed process");
        Vec::new()
    });
    for id in ids.into_iter().filter(|id| !known.iter().any(|(known, _)| known == id)) {
        let is_ours = driver
            .info(id)
            .is_ok_and(|device| device.is_some_and(|device| device.owner_mark == mark));
        if is_ours {
            tracing::info!(id, "deleting an incomplete ublk device");
            if let Err(error) = driver.delete(id) {
                let error = error.chain();
                tracing::error!(id, error, "cannot delete an incomplete ublk device");
            }
        }
    }
}
