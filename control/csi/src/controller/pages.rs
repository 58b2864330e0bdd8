//! Pagination. A page token is a name, so that concurrent creations and deletions do not shift
//! pages.

use tonic::Status;

/// Returns a page of `list`, which must be sorted by name, and the token of the next page.
pub(super) fn page<T>(
    list: Vec<T>,
    name_of: impl Fn(&T) -> &str,
    max_entries: i32,
    starting_token: &str,
) -> Result<(Vec<T>, String), Status> {
    let Ok(max_entries) = usize::try_from(max_entries) else {
        return Err(Status::invalid_argument("invalid max_entries: it must not be negative"));
    };
    let start = match starting_token {
        "" => "",
        token => token.strip_prefix(PREFIX).ok_or_else(|| {
            Status::aborted(format!(
                "invalid starting_token {token:?}; list again without a \
                                     token"
            ))
        })?,
    };
    let mut rest = list;
    rest.retain(|it| name_of(it) >= start);
    if max_entries == 0 || rest.len() <= max_entries {
        return Ok((rest, String::new()));
    }
    let next = format!("{PREFIX}{}", name_of(&rest[max_entries]));
    rest.truncate(max_entries);
    Ok((rest, next))
}

const PREFIX: &str = "from:";

#[cfg(test)]
mod tests {
    use super::*;

    fn names(max_entries: i32, token: &str) -> Result<(Vec<&'static str>, String), Status> {
        page(vec!["a", "b", "c"], |it| it, max_entries, token)
    }

    #[test]
    fn pages_follow_each_other_without_gaps() {
        let (first, token) = names(2, "").expect("a page");
        assert_eq!(first, ["a", "b"]);
        assert_eq!(names(2, &token).expect("the last page"), (vec!["c"], String::new()));
        assert_eq!(names(0, "").expect("all").0.len(), 3);
        assert_eq!(names(2, "x").expect_err("no token").code(), tonic::Code::Aborted);
        assert_eq!(names(-1, "").expect_err("refused").code(), tonic::Code::InvalidArgument);
    }
}
