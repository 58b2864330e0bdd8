//! Every operation, killed before each of its stores.

use crate::support::{
    Explored, Points, Scenario, compress_idle, create, delete, discard, maintain, snapshot, write,
};
use block_device::{ByteRange, Zeroes};
use model::{Contents, Operation, Reopening, Request, Shrink, Texture};

const MIB: u64 = 1 << 20;
const POOL_BYTES: u64 = 4 * MIB;

/// Number of blocks of a leaf.
const LEAF: u64 = 512;

fn check(name: &str, prepare: &[Operation], act: &[Operation]) -> Explored {
    let scenario = Scenario { name, pool_bytes: POOL_BYTES, prepare, act };
    scenario.explore(Points::Every { double_one_in: 11 })
}

fn request(slot: usize, request: Request) -> Operation {
    Operation::Request { slot, request }
}

fn write_bytes(slot: usize, offset: u64, length: usize, texture: Texture) -> Operation {
    let contents = Contents::new(texture, offset);
    request(slot, Request::Write { offset, length, contents })
}

/// Creates a volume with all kinds of contents in two leaves, and another with equal contents.
fn furnished() -> Vec<Operation> {
    vec![
        create(0, 8 * MIB),
        create(1, 4 * MIB),
        write(0, 0, 24, Texture::Mixed),
        write(0, LEAF - 4, 8, Texture::Noise),
        write(0, LEAF + 20, 8, Texture::FewTexts),
        write(1, 0, 24, Texture::Mixed),
        write(1, 40, 8, Texture::FewNoises),
    ]
}

#[test]
fn the_first_opening_of_a_pool() {
    check("first opening", &[], &[create(0, MIB), write(0, 0, 1, Texture::Noise)]);
}

#[test]
fn creating_and_writing_contents_of_every_kind() {
    let mut act = vec![create(2, 4 * MIB)];
    for (nth, texture) in (0..).zip(Texture::ALL) {
        act.push(write(2, nth * 3, 2, texture));
    }
    check("create and write", &furnished(), &act);
}

#[test]
fn writing_into_leaves_that_are_not_there_yet() {
    let act = [
        write(0, 3 * LEAF - 2, 4, Texture::Text),
        write_bytes(0, 7 * MIB + 100, 5000, Texture::Noise),
    ];
    check("new leaves", &furnished(), &act);
}

#[test]
fn overwriting_with_other_and_with_equal_contents() {
    let act = [
        write(0, 4, 4, Texture::Noise),
        write(0, 4, 4, Texture::Noise),
        write(0, LEAF - 2, 4, Texture::Text),
        write(1, 40, 4, Texture::Fill),
    ];
    check("overwrite", &furnished(), &act);
}

#[test]
fn writing_parts_of_blocks() {
    let act = [
        write_bytes(0, 100, 512, Texture::Noise),
        write_bytes(0, 4096 * (LEAF - 1) + 4000, 5000, Texture::Text),
        write_bytes(0, 30 * 4096 + 7, 9, Texture::Noise),
    ];
    check("parts of blocks", &furnished(), &act);
}

#[test]
fn discarding_a_part_of_a_leaf_and_whole_leaves() {
    let act = [discard(0, 2, 5), discard(0, LEAF - 2, LEAF), discard(0, 0, 2 * LEAF)];
    check("discard", &furnished(), &act);
}

#[test]
fn writing_zeroes() {
    let range = |start, length| ByteRange::new(start, length);
    let act = [
        request(0, Request::WriteZeroes(range(100, 20_000), Zeroes::Unmap)),
        request(0, Request::WriteZeroes(range(30_000, 9_000), Zeroes::KeepAllocated)),
        request(0, Request::WriteZeroes(range(5 * MIB + 5, 9_000), Zeroes::KeepAllocated)),
        request(1, Request::WriteZeroes(range(0, 4 * MIB), Zeroes::Unmap)),
    ];
    check("write zeroes", &furnished(), &act);
}

#[test]
fn renaming() {
    let act = [
        Operation::Rename { slot: 0, to: 2 },
        Operation::Rename { slot: 2, to: 3 },
        Operation::Rename { slot: 1, to: 2 },
    ];
    check("rename", &furnished(), &act);
}

#[test]
fn growing_and_shrinking() {
    let resize = |size_bytes, shrink| Operation::Resize { slot: 0, size_bytes, shrink };
    let act = [
        resize(16 * MIB, Shrink::KeepData),
        resize(4096 * (LEAF + 22), Shrink::KeepData),
        resize(4096 * (LEAF + 22), Shrink::DropData),
        resize(4096 * 7, Shrink::DropData),
        resize(8 * MIB, Shrink::KeepData),
    ];
    check("resize", &furnished(), &act);
}

#[test]
fn changing_the_reduction() {
    let set = |reduction| Operation::SetReduction { slot: 0, reduction };
    let act = [set(3), write(0, 60, 3, Texture::Text), set(1), write(0, 60, 3, Texture::Text)];
    check("reduction", &furnished(), &act);
}

#[test]
fn deleting() {
    check("delete", &furnished(), &[delete(0), create(0, MIB), delete(1), delete(0)]);
}

#[test]
fn closing_and_opening() {
    let act = [
        Operation::Reopen(Reopening::Clean),
        write(0, 0, 2, Texture::Noise),
        Operation::Reopen(Reopening::Clean),
        Operation::Reopen(Reopening::Unclean),
    ];
    let explored = check("close and open", &furnished(), &act);
    assert!(explored.stores > 30);
}

#[test]
fn searching_for_leaks_while_writing() {
    // Dropped, not closed: the act begins in the state after a kill.
    let act = [
        write(0, 2, 3, Texture::FewNoises),
        maintain(1),
        discard(1, 0, 12),
        delete(1),
        maintain(50),
        write(0, LEAF, 4, Texture::FewTexts),
    ];
    check("search for leaks", &furnished(), &act);
}

/// Pages with one reference and with two, compressible or not. Some are overwritten meanwhile.
#[test]
fn compressing_in_the_background() {
    let act = [
        write(0, 0, 24, Texture::Text),
        write(0, 64, 8, Texture::FewTexts),
        write(1, 64, 8, Texture::FewTexts),
        write(0, 80, 4, Texture::Noise),
        maintain(1),
        write(0, LEAF + 100, 4, Texture::FewTexts),
        write(0, 3, 4, Texture::Noise),
        maintain(8),
        Operation::Reopen(Reopening::Clean),
        write(1, 20, 4, Texture::Text),
        maintain(8),
    ];
    let explored = check("compression", &furnished(), &act);
    // More than 50 blocks lose their mark, most of which had their own page before.
    assert!(explored.stores > 350, "pages were compressed");
}

/// Uncompressed pages and LZ4 pages become dense. Some are read and restored, some overwritten.
#[test]
fn compressing_what_is_idle() {
    let read = |block: u64| Request::Read { offset: block * 4096, length: 4096 };
    let prepare = [furnished(), vec![maintain(60)]].concat();
    let act = [
        compress_idle(0),
        write(0, 64, 4, Texture::Text),
        compress_idle(8),
        request(0, read(2)),
        request(0, read(LEAF - 2)),
        maintain(2),
        write(0, 3, 2, Texture::Noise),
        write(1, 20, 4, Texture::Text),
        Operation::Reopen(Reopening::Clean),
        compress_idle(0),
        compress_idle(8),
        snapshot([0, 1], 0),
        write(0, 6, 2, Texture::Text),
        discard(1, 0, 12),
        maintain(4),
    ];
    let explored = check("idle compression", &prepare, &act);
    assert!(explored.stores > 200, "pages were compressed");
}

#[test]
fn moving_pages_out_of_sparse_slabs() {
    let mut prepare = vec![create(0, 8 * MIB), create(1, 4 * MIB)];
    prepare.push(write(0, 0, 256, Texture::Noise));
    // The same contents: pages with two references.
    prepare.push(write(1, 0, 64, Texture::Noise));
    prepare.push(Operation::Reopen(Reopening::Clean));
    for block in (0..256).step_by(8) {
        prepare.push(discard(0, block + 1, 7));
        prepare.push(discard(1, block + 1, 7));
    }
    prepare.push(Operation::Reopen(Reopening::Clean));
    let explored = check("evacuation", &prepare, &[maintain(200)]);
    // At least 32 pages are copied, each with two stores of bytes and one of its word.
    assert!(explored.stores > 100, "pages were moved");
}

#[test]
fn making_snapshots_of_one_instant_and_deleting_them() {
    let act = [
        snapshot([0, 1], 0),
        write(0, 3, 2, Texture::Noise),
        snapshot([0, 0], 1),
        Operation::RenameSnapshot { slot: 0, snapshot: 1, to: 2 },
        Operation::DeleteSnapshot { slot: 0, snapshot: 0 },
        maintain(3),
        Operation::DeleteSnapshot { slot: 1, snapshot: 0 },
        delete(1),
    ];
    check("snapshots", &furnished(), &act);
}

/// Changes shared leaves, new leaves below shared nodes, and leaves that were copied already.
#[test]
fn changing_maps_that_share_nodes() {
    let prepare = [furnished(), vec![snapshot([0, 1], 0)]].concat();
    let act = [
        write(0, 4, 2, Texture::Noise),
        write(0, 4, 2, Texture::Text),
        write(0, 3 * LEAF, 1, Texture::Noise),
        write_bytes(0, 4096 * (LEAF + 20) + 100, 512, Texture::Noise),
        discard(1, 2, 5),
        discard(1, 0, LEAF),
        request(0, Request::WriteZeroes(ByteRange::new(100, 20_000), Zeroes::Unmap)),
        maintain(4),
    ];
    check("shared nodes", &prepare, &act);
}

#[test]
fn cloning_and_changing_clones() {
    let prepare = [furnished(), vec![snapshot([0, 0], 0), write(0, 1, 1, Texture::Noise)]].concat();
    let act = [
        Operation::Clone { slot: 0, snapshot: Some(0), to: 2 },
        Operation::Clone { slot: 0, snapshot: None, to: 3 },
        write(2, 1, 2, Texture::FewNoises),
        discard(3, LEAF - 4, LEAF),
        delete(3),
        Operation::Rename { slot: 0, to: 3 },
        maintain(3),
        delete(2),
    ];
    check("clones", &prepare, &act);
}

#[test]
fn restoring_a_snapshot_of_another_size() {
    let resize = |size_bytes| Operation::Resize { slot: 0, size_bytes, shrink: Shrink::DropData };
    let prepare =
        [furnished(), vec![snapshot([0, 0], 0), resize(MIB), write(0, 2, 3, Texture::Text)]]
            .concat();
    let act = [
        Operation::Restore { slot: 0, snapshot: 0 },
        write(0, 2, 2, Texture::Noise),
        snapshot([0, 0], 1),
        resize(2 * MIB),
        Operation::Restore { slot: 0, snapshot: 1 },
        Operation::DeleteSnapshot { slot: 0, snapshot: 0 },
        maintain(3),
    ];
    check("restore", &prepare, &act);
}

/// Shared nodes are visited once, from any of their maps.
#[test]
fn searching_for_leaks_in_maps_that_share_nodes() {
    let prepare = [
        furnished(),
        vec![
            snapshot([0, 1], 0),
            write(0, 2, 2, Texture::Noise),
            Operation::Clone { slot: 0, snapshot: Some(0), to: 2 },
        ],
    ]
    .concat();
    // Dropped, not closed: the act begins in the state after a kill.
    let act = [
        write(0, LEAF + 1, 1, Texture::FewNoises),
        write(2, 2, 3, Texture::FewNoises),
        maintain(1),
        discard(1, 0, LEAF),
        Operation::DeleteSnapshot { slot: 0, snapshot: 0 },
        maintain(50),
        write(2, LEAF, 4, Texture::FewTexts),
    ];
    check("search for leaks in shared maps", &prepare, &act);
}

/// Pages move in leaves that maps share, and in copies of these leaves.
#[test]
fn compressing_in_maps_that_share_nodes() {
    let act = [
        write(0, 0, 16, Texture::Text),
        snapshot([0, 0], 0),
        write(0, 3, 2, Texture::Noise),
        Operation::Clone { slot: 0, snapshot: Some(0), to: 2 },
        maintain(8),
        write(2, 5, 2, Texture::FewTexts),
        maintain(8),
        Operation::DeleteSnapshot { slot: 0, snapshot: 0 },
        maintain(4),
    ];
    check("compression in shared maps", &furnished(), &act);
}
