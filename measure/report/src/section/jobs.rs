//! Common code of the sections on fio jobs: selects measurements that differ in one parameter.

use std::collections::BTreeMap;

use crate::book::Book;
use crate::group::Group;
use crate::papers::FORSA_PATTERNS;

/// Groups measurements by target and variant of the job, in recorded order.
pub(crate) fn by_subject<'book>(
    book: &Book,
    groups: &[Group<'book>],
) -> Vec<(String, Vec<Group<'book>>)> {
    let mut places = BTreeMap::new();
    let mut subjects: Vec<(String, Vec<Group>)> = Vec::new();
    for group in groups {
        let target = book.target_name(group);
        let subject = match variant(group.case()) {
            "" => target,
            variant => format!("{target}, {variant}"),
        };
        let place = *places.entry(subject.clone()).or_insert(subjects.len());
        match subjects.get_mut(place) {
            Some((_, groups)) => groups.push(group.clone()),
            None => subjects.push((subject, vec![group.clone()])),
        }
    }
    subjects
}

/// Returns the suffix of a case's name after the job: `apart` of `read 4096 jobs=1 depth=1 apart`.
fn variant(case: &str) -> &str {
    let after = case.split_once("depth=").map_or("", |(_, after)| after);
    after.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim()
}

/// Describes a job for people: `4K random read, 2 jobs, depth 16`.
pub(crate) fn job_text(group: &Group) -> String {
    let parts = group.word("rw").zip(group.count("block_bytes"));
    let Some((pattern, block_bytes)) = parts else { return group.case().to_owned() };
    let known = FORSA_PATTERNS.iter().find(|(name, _)| *name == pattern);
    let pattern = known.map_or(pattern.to_owned(), |(_, name)| name.to_lowercase());
    let mut text = format!("{} {pattern}", size_text(block_bytes));
    if let Some(jobs) = group.count("jobs").filter(|&jobs| jobs > 1) {
        text += &format!(", {}", count_text(jobs, "job"));
    }
    if let Some(depth) = group.count("queue_depth") {
        text += &format!(", depth {depth}");
    }
    match variant(group.case()) {
        "" => text,
        variant => format!("{text}, {variant}"),
    }
}

/// Formats `1 job`, `2 jobs`.
pub(crate) fn count_text(count: u64, of: &str) -> String {
    match count {
        1 => format!("1 {of}"),
        count => format!("{count} {of}s"),
    }
}

/// Returns the distinct values of an integer parameter, ascending.
pub(crate) fn steps(groups: &[Group], name: &str) -> Vec<u64> {
    let mut steps: Vec<u64> = groups.iter().filter_map(|group| group.count(name)).collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// Returns the group with this pattern and these integer parameters.
pub(crate) fn at<'all, 'book>(
    groups: &'all [Group<'book>],
    pattern: &str,
    counts: &[(&str, u64)],
) -> Option<&'all Group<'book>> {
    groups.iter().find(|group| {
        group.word("rw") == Some(pattern)
            && counts.iter().all(|&(name, count)| group.count(name) == Some(count))
    })
}

/// Formats `4K`, `1M`.
pub(crate) fn size_text(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_may_name_a_variant_of_its_job() {
        assert_eq!(variant("randread 4096 jobs=1 depth=16"), "");
        assert_eq!(variant("read 4096 jobs=32 depth=1 pre-built"), "pre-built");
        assert_eq!(variant("idle"), "");
    }

    #[test]
    fn sizes_are_written_as_fio_writes_them() {
        assert_eq!(size_text(4096), "4K");
        assert_eq!(size_text(1 << 20), "1M");
        assert_eq!(size_text(512), "512");
    }
}
