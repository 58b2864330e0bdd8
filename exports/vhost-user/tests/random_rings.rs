//! Random ring contents. `MEMLANE_SEED_COUNT` is the number of runs; `MEMLANE_SEED` replays one.

#[path = "support/storm.rs"]
mod storm;
mod support;

const RINGS_DEFAULT: u64 = 300;
const BYTES_PER_RING: usize = 1200;

#[test]
fn no_ring_keeps_an_export_from_serving_the_next_front_end() {
    let mut fixture = storm::Fixture::new();
    let command = "cargo test -p vhost-user --test random_rings";
    model::for_each_seed(command, RINGS_DEFAULT, |seed| {
        let mut state = seed;
        let mut byte = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state.to_be_bytes()[0]
        };
        let bytes: Vec<u8> = (0..BYTES_PER_RING).map(|_| byte()).collect();
        fixture.run(&bytes);
        fixture.check();
    });
    let (chains, traffic) = (fixture.chain_count, fixture.traffic());
    eprintln!("measured: {chains} chains, {traffic:?}");
    assert!(traffic.errors > 0, "nothing was refused: the rings were never looked at");
    assert!(traffic.read_bytes > 0, "nothing was copied to the guest");
    assert!(traffic.written_bytes > 0, "nothing was copied from the guest");
}
