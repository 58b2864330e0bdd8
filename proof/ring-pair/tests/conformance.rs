//! The conformance suite of all exports, through the ring and its client.

use std::sync::Arc;

use block_device::{BlockDevice, SectorSize};
use conformance::SIZE_BYTES_MIN;
use model::ModelVolume;
use ring_pair::{Running, SdkSubject};

#[test]
fn a_volume_over_the_ring_passes_every_case() {
    let running = Running::new(Arc::new(ModelVolume::new(SIZE_BYTES_MIN, SectorSize::Bytes512)));
    let subject = SdkSubject(running.open());
    assert_eq!(conformance::check(&subject, 1), conformance::case_count());
}

#[test]
fn a_read_only_volume_takes_no_change_over_the_ring() {
    let volume = ModelVolume::new(SIZE_BYTES_MIN, SectorSize::Bytes4096);
    volume.write(0, &[3; 4096]).expect("it takes changes still");
    let running = Running::new(Arc::new(volume.copy_read_only()));
    conformance::check_read_only(&SdkSubject(running.open()));
}
