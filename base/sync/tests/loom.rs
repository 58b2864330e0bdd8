//! Model checking of the protocols for reuse of memory, over all interleavings.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p sync --test loom --release`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use sync::{Grace, counted};

/// Explores `body` with at most three preemptions, which suffices for the known kinds of races.
fn explore(body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

/// Two slots with contents, one of which is published by its index.
struct Pages {
    grace: Grace,
    published: AtomicU64,
    contents: [UnsafeCell<u64>; 2],
}

#[test]
fn a_page_is_not_reused_while_a_reader_in_its_own_place_may_look_at_it() {
    explore_reuse(1);
}

#[test]
fn a_page_is_not_reused_while_a_reader_in_a_shared_place_may_look_at_it() {
    explore_reuse(0);
}

fn explore_reuse(own_places: usize) {
    explore(move || {
        let pages = Arc::new(Pages {
            grace: Grace::new(own_places),
            published: AtomicU64::new(0),
            contents: [UnsafeCell::new(10), UnsafeCell::new(11)],
        });
        let reader = {
            let pages = Arc::clone(&pages);
            thread::spawn(move || {
                let pinned = pages.grace.pin_for(0);
                let index = usize::try_from(pages.published.load(Ordering::Acquire)).expect("fits");
                let seen = pages.contents[index].with(|contents| unsafe { *contents });
                drop(pinned);
                assert!(seen == 10 || seen == 11, "a reader saw reused contents");
            })
        };
        pages.published.store(1, Ordering::Release);
        let epoch = pages.grace.retire_epoch();
        if pages.grace.advance() >= epoch {
            pages.contents[0].with_mut(|contents| unsafe { *contents = 99 });
        }
        reader.join().expect("the reader ends");
    });
}

#[test]
fn a_page_is_not_reused_while_one_of_two_pins_in_a_shared_place_is_left() {
    explore(|| {
        let pages = Arc::new(Pages {
            grace: Grace::new(0),
            published: AtomicU64::new(0),
            contents: [UnsafeCell::new(10), UnsafeCell::new(11)],
        });
        let reader = {
            let pages = Arc::clone(&pages);
            thread::spawn(move || {
                let outer = pages.grace.pin_for(0);
                drop(pages.grace.pin_for(0));
                let index = usize::try_from(pages.published.load(Ordering::Acquire)).expect("fits");
                let seen = pages.contents[index].with(|contents| unsafe { *contents });
                drop(outer);
                assert!(seen == 10 || seen == 11, "a reader saw reused contents");
            })
        };
        pages.published.store(1, Ordering::Release);
        let epoch = pages.grace.retire_epoch();
        if pages.grace.advance() >= epoch {
            pages.contents[0].with_mut(|contents| unsafe { *contents = 99 });
        }
        reader.join().expect("the reader ends");
    });
}

#[test]
fn what_is_shared_by_a_hint_is_complete() {
    explore(|| {
        let word = Arc::new(AtomicU64::new(0));
        let contents = Arc::new(UnsafeCell::new(0_u64));
        let sharer = {
            let (word, contents) = (Arc::clone(&word), Arc::clone(&contents));
            thread::spawn(move || {
                if counted::try_share(&word, |description| description == 5).is_some() {
                    contents.with(|contents| assert_eq!(unsafe { *contents }, 42));
                    counted::drop_one(&word);
                }
            })
        };
        contents.with_mut(|contents| unsafe { *contents = 42 });
        counted::publish(&word, 5);
        sharer.join().expect("the sharer ends");
    });
}

#[test]
fn the_last_of_two_droppers_owns_the_page_alone() {
    explore(|| {
        let word = Arc::new(AtomicU64::new(0));
        let contents = Arc::new(UnsafeCell::new(42_u64));
        counted::publish(&word, 5);
        assert!(counted::try_share(&word, |_| true).is_some());
        let give_back = |word: Arc<AtomicU64>, contents: Arc<UnsafeCell<u64>>| {
            contents.with(|contents| assert_eq!(unsafe { *contents }, 42));
            if counted::drop_one(&word).is_some() {
                contents.with_mut(|contents| unsafe { *contents = 0 });
            }
        };
        let other = {
            let (word, contents) = (Arc::clone(&word), Arc::clone(&contents));
            thread::spawn(move || give_back(word, contents))
        };
        give_back(word, contents);
        other.join().expect("the other ends");
    });
}

#[test]
fn sharing_and_the_last_drop_never_both_win() {
    explore(|| {
        let word = Arc::new(AtomicU64::new(0));
        counted::publish(&word, 5);
        let sharer = {
            let word = Arc::clone(&word);
            thread::spawn(move || counted::try_share(&word, |_| true).is_some())
        };
        let was_last = counted::drop_one(&word).is_some();
        let shared = sharer.join().expect("the sharer ends");
        assert_ne!(was_last, shared, "the page is either free or shared");
    });
}

#[test]
fn a_latch_lets_one_thread_in_at_a_time() {
    explore(|| {
        let latch = Arc::new(sync::Latch::new());
        let count = Arc::new(UnsafeCell::new(0_u64));
        let raise = |latch: Arc<sync::Latch>, count: Arc<UnsafeCell<u64>>| {
            let _held = latch.lock();
            count.with_mut(|count| unsafe { *count += 1 });
        };
        let other = {
            let (latch, count) = (Arc::clone(&latch), Arc::clone(&count));
            thread::spawn(move || raise(latch, count))
        };
        raise(Arc::clone(&latch), Arc::clone(&count));
        other.join().expect("the other ends");
        count.with(|count| assert_eq!(unsafe { *count }, 2));
    });
}
