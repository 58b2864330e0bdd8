//! A gate that threads wait at until all of them may go on, or none.

use std::sync::{Condvar, Mutex, PoisonError};

/// What those who wait are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Go,
    GoHome,
}

/// Opened once.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    word: Mutex<Option<Word>>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn open(&self, word: Word) {
        *self.word.lock().unwrap_or_else(PoisonError::into_inner) = Some(word);
        self.opened.notify_all();
    }

    pub(crate) fn wait(&self) -> Word {
        let mut word = self.word.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *word {
                Some(word) => return word,
                None => word = self.opened.wait(word).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn all_who_wait_hear_the_same_word() {
        let gate = Gate::default();
        thread::scope(|scope| {
            let waiting = [0; 3].map(|_| scope.spawn(|| gate.wait()));
            gate.open(Word::GoHome);
            for thread in waiting {
                assert_eq!(thread.join().expect("it does not panic"), Word::GoHome);
            }
        });
    }
}
