//! Partial updates of JSON objects: merge patches (RFC 7396).

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;

/// Maximum depth of nested objects that are merged. Deeper ones are replaced.
const DEPTH_MAX: usize = 64;

type Object<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// Applies a patch. A patch that is not a JSON object replaces the value, and a value that is not
/// one counts as empty. The notation of numbers is retained.
pub(super) fn merged(before: Option<&[u8]>, patch: &[u8]) -> Bytes {
    let Some(patch_object) = object(patch) else { return Bytes::copy_from_slice(patch) };
    let mut out = String::new();
    put_merged(before.and_then(object), &patch_object, DEPTH_MAX, &mut out);
    out.into()
}

fn object(bytes: &[u8]) -> Option<Object<'_>> {
    serde_json::from_slice(bytes).ok()
}

fn put_merged(before: Option<Object<'_>>, patch: &Object<'_>, depth_left: usize, out: &mut String) {
    let before = before.unwrap_or_default();
    let mut is_first = true;
    let mut names: Vec<&Cow<'_, str>> = before.keys().chain(patch.keys()).collect();
    names.sort_unstable();
    names.dedup();
    out.push('{');
    for name in names {
        let (old, new) = (before.get(name), patch.get(name));
        if new.is_some_and(|it| it.get() == "null") {
            continue;
        }
        if !std::mem::replace(&mut is_first, false) {
            out.push(',');
        }
        out.push_str(&serde_json::to_string(name).expect("text is JSON"));
        out.push(':');
        let inner = new.filter(|_| depth_left > 0).and_then(|it| object(it.get().as_bytes()));
        match (inner, new.or(old)) {
            (Some(inner), _) => {
                let old = old.and_then(|it| object(it.get().as_bytes()));
                put_merged(old, &inner, depth_left - 1, out);
            }
            (None, Some(value)) => out.push_str(value.get()),
            (None, None) => unreachable!("the name is one of theirs"),
        }
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_merged_as_the_standard_has_it() {
        // RFC 7396, appendix A, except for cases that patch something other than an object.
        for (before, patch, expected) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
            (r#"[1,2]"#, r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            (r#"{}"#, r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
            ("no JSON", r#"{"n":12345678901234567890.10}"#, r#"{"n":12345678901234567890.10}"#),
            (r#"{"a":1}"#, "{cut", "{cut"),
        ] {
            let merged = merged(Some(before.as_bytes()), patch.as_bytes());
            assert_eq!(std::str::from_utf8(&merged), Ok(expected), "{before} {patch}");
        }
        assert_eq!(&merged(None, br#"{"a":null,"b":1}"#)[..], br#"{"b":1}"#);
        let deep = |last: &str| format!("{}{last}{}", r#"{"a":"#.repeat(60), "}".repeat(60));
        let both = merged(Some(deep("1").as_bytes()), deep("2").as_bytes());
        assert_eq!(both, deep("2"));
        let endless = r#"{"a":"#.repeat(100_000);
        assert_eq!(merged(Some(b"{}"), endless.as_bytes()), endless);
    }
}
