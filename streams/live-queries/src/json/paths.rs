//! The JSON paths that the queries of a topic want, and where they stand in a record.
//!
//! A record is read once for all queries. Of a repeated key the last one counts.

use std::cmp::Ordering;
use std::str;

use crate::json::scanner::{Inside, Scanner};
use crate::json::strings::unescape;
use crate::limits::{JSON_DEPTH_MAX, PATHS_MAX};

/// A step of a path: into an object, or into an array by an index from 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Key(String),
    Index(u32),
}

/// A path's place in [`Fields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathId(usize);

/// The set of wanted paths. Each has as many users as took it.
#[derive(Debug, Default)]
pub struct Paths {
    paths: Vec<Wanted>,
    root: Node,
}

#[derive(Debug)]
struct Wanted {
    steps: Vec<Step>,
    user_count: usize,
}

#[derive(Debug, Default)]
struct Node {
    /// Where the value at this node is noted.
    slot: Option<usize>,
    /// In the order of [`by_length`].
    keys: Vec<(String, Node)>,
    /// A bit for each length of a key; the highest one for all that are longer.
    key_lengths: u64,
    indices: Vec<(u32, Node)>,
}

/// Where the wanted values of one record stand in its text. To be used again for the next record.
#[derive(Debug, Default)]
pub struct Fields {
    spans: Vec<Option<(usize, usize)>>,
}

impl Paths {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes `steps` into the set, or gives `None` when it holds [`PATHS_MAX`] already.
    pub fn take(&mut self, steps: &[Step]) -> Option<PathId> {
        if let Some(index) = self.paths.iter().position(|it| it.steps == steps) {
            self.paths[index].user_count += 1;
            if self.paths[index].user_count == 1 {
                self.rebuild();
            }
            return Some(PathId(index));
        }
        let wanted = Wanted { steps: steps.to_vec(), user_count: 1 };
        let free = self.paths.iter().position(|it| it.user_count == 0);
        let index = match free {
            Some(index) => {
                self.paths[index] = wanted;
                index
            }
            None if self.paths.len() < PATHS_MAX => {
                self.paths.push(wanted);
                self.paths.len() - 1
            }
            None => return None,
        };
        self.rebuild();
        Some(PathId(index))
    }

    /// The steps of a path that is in use.
    pub(crate) fn steps(&self, path: PathId) -> &[Step] {
        &self.paths[path.0].steps
    }

    /// Gives back one use of `path`.
    pub fn release(&mut self, path: PathId) {
        let wanted = &mut self.paths[path.0];
        assert!(wanted.user_count > 0, "a path is released as often as it was taken");
        wanted.user_count -= 1;
        if wanted.user_count == 0 {
            self.rebuild();
        }
    }

    /// Returns whether no query wants any part of a record.
    pub fn is_empty(&self) -> bool {
        self.root.is_leaf() && self.root.slot.is_none()
    }

    /// Notes in `fields` where the wanted values of `value` stand, and gives its text.
    /// `None` where it is no JSON: then all fields are absent.
    pub fn read<'a>(&self, value: &'a [u8], fields: &mut Fields) -> Option<&'a str> {
        fields.spans.clear();
        fields.spans.resize(self.paths.len(), None);
        if self.is_empty() {
            return None;
        }
        let text = str::from_utf8(value).ok()?;
        let end = self.root.read(Scanner::new(value), 0, &mut fields.spans);
        if end.is_some_and(|mut it| it.is_at_end()) {
            return Some(text);
        }
        fields.spans.fill(None);
        None
    }

    fn rebuild(&mut self) {
        self.root = Node::default();
        for (index, wanted) in self.paths.iter().enumerate() {
            if wanted.user_count > 0 {
                self.root.insert(&wanted.steps, index);
            }
        }
    }
}

impl Fields {
    /// The JSON text at `path` in the record that was read last, whose text `text` is.
    pub fn get<'a>(&self, path: PathId, text: &'a str) -> Option<&'a str> {
        let (start, end) = self.spans.get(path.0).copied().flatten()?;
        text.get(start..end)
    }
}

impl Node {
    fn is_leaf(&self) -> bool {
        self.keys.is_empty() && self.indices.is_empty()
    }

    fn insert(&mut self, steps: &[Step], slot: usize) {
        let Some((first, rest)) = steps.split_first() else {
            self.slot = Some(slot);
            return;
        };
        let child = match first {
            Step::Key(key) => {
                self.key_lengths |= length_bit(key.len());
                child_of(&mut self.keys, key, |it| by_length(it.as_bytes(), key.as_bytes()))
            }
            Step::Index(index) => child_of(&mut self.indices, index, |it| it.cmp(index)),
        };
        child.insert(rest, slot);
    }

    /// Reads the value that comes next, around which `depth` containers are open, and gives the
    /// place behind it. Recurses as deep as paths are long.
    fn read<'a>(
        &self,
        mut scanner: Scanner<'a>,
        depth: usize,
        spans: &mut [Option<(usize, usize)>],
    ) -> Option<Scanner<'a>> {
        let first = scanner.peek()?;
        let start = scanner.at();
        let is_deep = depth >= JSON_DEPTH_MAX;
        match first {
            b'{' if !self.keys.is_empty() && !is_deep => {
                scanner = self.read_object(scanner, depth + 1, spans)?;
            }
            b'[' if !self.indices.is_empty() && !is_deep => {
                scanner = self.read_array(scanner, depth + 1, spans)?;
            }
            _ => scanner.skip_value(depth)?,
        }
        if let Some(slot) = self.slot {
            spans[slot] = Some((start, scanner.at()));
        }
        Some(scanner)
    }

    fn read_object<'a>(
        &self,
        mut scanner: Scanner<'a>,
        depth: usize,
        spans: &mut [Option<(usize, usize)>],
    ) -> Option<Scanner<'a>> {
        scanner.take(b'{');
        if scanner.take(b'}') {
            return Some(scanner);
        }
        loop {
            let key = scanner.key()?;
            match self.child(&key) {
                Some(child) => {
                    child.forget(spans);
                    scanner = child.read(scanner, depth, spans)?;
                }
                None => scanner.skip_value(depth)?,
            }
            if !scanner.take(b',') {
                return scanner.take(b'}').then_some(scanner);
            }
        }
    }

    fn read_array<'a>(
        &self,
        mut scanner: Scanner<'a>,
        depth: usize,
        spans: &mut [Option<(usize, usize)>],
    ) -> Option<Scanner<'a>> {
        scanner.take(b'[');
        if scanner.take(b']') {
            return Some(scanner);
        }
        for index in 0_u32.. {
            match self.indices.binary_search_by_key(&index, |(it, _)| *it) {
                Ok(at) => scanner = self.indices[at].1.read(scanner, depth, spans)?,
                Err(_) => scanner.skip_value(depth)?,
            }
            if !scanner.take(b',') {
                break;
            }
        }
        scanner.take(b']').then_some(scanner)
    }

    /// Forgets what an earlier value of the same key left.
    fn forget(&self, spans: &mut [Option<(usize, usize)>]) {
        if let Some(slot) = self.slot {
            spans[slot] = None;
        }
        self.keys.iter().for_each(|(_, child)| child.forget(spans));
        self.indices.iter().for_each(|(_, child)| child.forget(spans));
    }

    /// The child for a key as it stands between its quotes.
    fn child(&self, key: &Inside<'_>) -> Option<&Node> {
        let find = |key: &[u8]| {
            if self.key_lengths & length_bit(key.len()) == 0 {
                return None;
            }
            let at = self.keys.binary_search_by(|(it, _)| by_length(it.as_bytes(), key));
            at.ok().map(|at| &self.keys[at].1)
        };
        match key.has_escapes {
            false => find(key.bytes),
            true => find(unescape(str::from_utf8(key.bytes).ok()?).ok()?.as_bytes()),
        }
    }
}

fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

/// The order of keys: most are told apart without a look at their bytes.
fn by_length(left: &[u8], right: &[u8]) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

/// The child at `step`, made if it is not there; children are in order, and `order` tells how one's
/// step stands to `step`.
fn child_of<'a, K: Clone>(
    children: &'a mut Vec<(K, Node)>,
    step: &K,
    order: impl Fn(&K) -> Ordering,
) -> &'a mut Node {
    let at = match children.binary_search_by(|(it, _)| order(it)) {
        Ok(at) => at,
        Err(at) => {
            children.insert(at, (step.clone(), Node::default()));
            at
        }
    };
    &mut children[at].1
}
