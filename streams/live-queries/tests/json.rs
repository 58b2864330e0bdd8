//! Compares JSON validation and path lookups with serde_json.

use live_queries::limits::JSON_DEPTH_MAX;
use live_queries::{
    ColumnSource, Fields, JsonStep, Paths, Query, Record, Row, Step, Table, TableColumn, Type,
    Value, find_json, parse_query,
};
use model::{Random, for_each_seed};

/// Evaluates a column on a record whose value is `text`.
fn select(expression: &str, text: &[u8]) -> Value<'static> {
    select_all(expression, text).remove(0)
}

/// Evaluates several columns on a record whose value is `text`, in a single pass.
fn select_all(expressions: &str, text: &[u8]) -> Vec<Value<'static>> {
    let mut table = Table::log("t");
    table.columns.push(TableColumn {
        name: "document".to_owned(),
        source: ColumnSource::Value,
        data_type: Type::Json,
    });
    table.columns.push(TableColumn {
        name: "declared".to_owned(),
        source: ColumnSource::Path(vec![Step::Key("a".to_owned()), Step::Index(1)]),
        data_type: Type::Int8,
    });
    for (name, data_type) in [("n", Type::Numeric), ("j", Type::Json), ("s", Type::Text)] {
        let (name, source) =
            (name.to_owned(), ColumnSource::Field { name: name.to_owned(), is_whole: false });
        table.columns.push(TableColumn { name, source, data_type });
    }
    let mut paths = Paths::new();
    let query = parse_query(&format!("SELECT {expressions} FROM t")).expect("it is a query");
    let query = Query::compile(&query, &table, &mut paths).expect("it compiles");
    let record = Record {
        partition: 0,
        offset: 0,
        timestamp_ms: 0,
        key: None,
        value: Some(text),
        headers: &[],
    };
    let mut fields = Fields::default();
    let row = Row::read(record, &paths, &mut fields);
    query.project(&row).expect("it has no groups").expect("nothing fails")
}

fn is_json(text: &[u8]) -> bool {
    !select("document", text).is_null()
}

/// Generates JSON of a few levels, with duplicate keys, escapes and spaces.
fn random_json(random: &mut Random, depth: u32) -> String {
    let space = random.pick(&["", "", "", " ", "\n\t "]);
    let inner = |random: &mut Random| random_json(random, depth - 1);
    let text = match random.below(if depth == 0 { 5 } else { 9 }) {
        0 => random.pick(&["0", "-1", "1.5e-3", "12345678901234567890", "1E+2"]).to_owned(),
        1 => random.pick(&["true", "false", "null"]).to_owned(),
        2..=4 => {
            random.pick(&[r#""""#, r#""a""#, r#""\u00e9\n\"""#, r#""x\\""#, "\"é\""]).to_owned()
        }
        5 | 6 => {
            let items: Vec<String> = (0..random.below(4)).map(|_| inner(random)).collect();
            format!("[{}]", items.join(","))
        }
        _ => {
            let members: Vec<String> = (0..random.below(5))
                .map(|_| {
                    let key = random.pick(&["\"a\"", "\"b\"", r#""\u0061""#, "\"\""]);
                    format!("{key}{space}:{}", inner(random))
                })
                .collect();
            format!("{{{}}}", members.join(","))
        }
    };
    format!("{space}{text}{space}")
}

#[test]
fn what_counts_as_json_is_what_others_take_for_it() {
    for_each_seed("cargo test -p live-queries --test json", 100, |seed| {
        let mut random = Random::new(seed);
        for _ in 0..50 {
            let mut text = random_json(&mut random, 4).into_bytes();
            // Often damaged by a changed, removed or truncated byte.
            if random.one_in(2) {
                let at = random.index(text.len());
                match random.below(3) {
                    0 => text[at] = random.pick(b"\"\\{}[]:,0e-. \x01\xff"),
                    1 => drop(text.remove(at)),
                    _ => text.truncate(at),
                }
            }
            // Grammar only: numbers of any size, and escapes that text cannot represent.
            let expected = std::str::from_utf8(&text)
                .is_ok_and(|it| serde_json::from_str::<serde::de::IgnoredAny>(it).is_ok());
            assert_eq!(is_json(&text), expected, "{}", String::from_utf8_lossy(&text));
        }
    });
}

#[test]
fn a_path_leads_to_what_stands_there() {
    const PATHS: &[(&str, &str)] = &[
        ("value->'a'", "/a"),
        ("value->'a'->'b'", "/a/b"),
        ("value->'a'->1", "/a/1"),
        ("value->0->'b'", "/0/b"),
        ("value->''", "/"),
    ];
    for_each_seed("cargo test -p live-queries --test json", 100, |seed| {
        let mut random = Random::new(seed);
        for _ in 0..20 {
            let text = random_json(&mut random, 4);
            let whole: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
            for (path, pointer) in PATHS {
                // A JSON pointer treats "0" as a key or an index; SQL distinguishes them.
                let expected = whole.pointer(pointer).filter(|_| {
                    let keys = pointer.split('/').skip(1);
                    let mut at = &whole;
                    keys.into_iter().all(|key| {
                        let fits = at.is_array() == key.parse::<u32>().is_ok();
                        at = at.pointer(&format!("/{key}")).unwrap_or(&serde_json::Value::Null);
                        fits
                    })
                });
                let given = match select(path, text.as_bytes()) {
                    Value::Json(raw) => Some(serde_json::from_str(&raw).expect("a part is JSON")),
                    _ => None,
                };
                assert_eq!(given.as_ref(), expected, "{path} of {text}");
            }
        }
    });
}

/// Generates JSON whose values are all different, with strings of all lengths, duplicate keys and
/// spaces.
fn varied_json(random: &mut Random, depth: u32, text: &mut String) {
    let space = |random: &mut Random| random.pick(&["", "", "", "", " ", "\n    ", "\r\n\t"]);
    text.push_str(space(random));
    match random.below(if depth == 0 { 5 } else { 8 }) {
        0 => text.push_str(random.pick(&["true", "false", "null", "0", "-0.5e-3", "[]", "{}"])),
        1 | 2 => text.push_str(&format!("{}.{}", random.below(1_000), random.below(1_000_000))),
        3 | 4 => {
            text.push_str(&format!("\"{}", random.below(1_000)));
            let one_in = random.pick(&[5, 20, 1_000]);
            for _ in 0..random.below(60) {
                let special = random.one_in(one_in);
                let others: &[&str] = &["\\\"", "\\\\", "\\n", "\\u00e9", "\u{e9}", "\u{1f600}"];
                text.push_str(if special { random.pick(others) } else { "x" });
            }
            text.push('"');
        }
        5 | 6 => {
            text.push('[');
            for index in 0..random.below(5) {
                text.push_str(if index > 0 { "," } else { "" });
                varied_json(random, depth - 1, text);
            }
            text.push(']');
        }
        _ => {
            text.push('{');
            for index in 0..random.below(6) {
                text.push_str(if index > 0 { "," } else { "" });
                text.push_str(space(random));
                text.push_str(random.pick(&["\"a\"", "\"b\"", r#""\u0061""#, r#""\"""#, "\"\""]));
                text.push_str(space(random));
                text.push(':');
                varied_json(random, depth - 1, text);
            }
            text.push('}');
        }
    }
    text.push_str(space(random));
}

/// Removes, changes or repeats a byte or a part of `text`.
fn broken(random: &mut Random, text: &str) -> Vec<u8> {
    let mut text = text.as_bytes().to_vec();
    let at = random.index(text.len());
    let end = text.len().min(at + random.index(12));
    match random.below(5) {
        0 => text[at] = random.pick(b"\"\\{}[]:,0e-. \x01\x7f\xff"),
        1 => drop(text.remove(at)),
        2 => text.truncate(at),
        3 => drop(text.drain(at..end)),
        _ => text.extend_from_within(at..end),
    }
    text
}

fn random_step(random: &mut Random) -> JsonStep<'static> {
    match random.one_in(3) {
        true => JsonStep::Index(random.pick(&[0, 1, 2, -1, -2, -3, i64::MIN, i64::MAX])),
        false => JsonStep::Key(random.pick(&["a", "a", "b", "\"", ""])),
    }
}

/// Returns the value at `path` according to serde_json.
fn expected_at<'a>(
    whole: &'a serde_json::Value,
    path: &[JsonStep<'_>],
) -> Option<&'a serde_json::Value> {
    path.iter().try_fold(whole, |value, step| match step {
        JsonStep::Key(key) => value.as_object()?.get(*key),
        JsonStep::Index(index) => {
            let items = value.as_array()?;
            let from_end = || items.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?);
            items.get(usize::try_from(*index).ok().or_else(from_end)?)
        }
    })
}

/// Returns `path` as a chain of operators, if live queries support it: they have no negative
/// indexes.
fn operators(path: &[JsonStep<'_>]) -> Option<String> {
    path.iter().try_fold("value".to_owned(), |before, step| match step {
        JsonStep::Key(key) => Some(format!("{before}->'{key}'")),
        JsonStep::Index(index) => {
            let index = u32::try_from(*index).ok()?;
            Some(format!("{before}->{index}"))
        }
    })
}

#[test]
fn any_path_of_any_text_leads_to_what_serde_json_has_there() {
    for_each_seed("cargo test -p live-queries --test json", 200, |seed| {
        let mut random = Random::new(seed);
        for _ in 0..20 {
            let mut text = String::new();
            let depth = u32::try_from(random.below(5)).expect("it is small");
            varied_json(&mut random, depth, &mut text);
            check_paths(&mut random, &text, true);
            let Ok(text) = String::from_utf8(broken(&mut random, &text)) else { continue };
            check_paths(&mut random, &text, false);
        }
    });
}

fn check_paths(random: &mut Random, text: &str, is_whole: bool) {
    let is_valid = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    assert!(is_valid || !is_whole, "{text}");
    assert_eq!(find_json(text, &[]), is_valid.then_some(text.trim_ascii()), "{text}");
    assert_eq!(is_json(text.as_bytes()), is_valid, "{text}");
    // serde_json cannot represent every number and escape in damaged text that is still valid JSON.
    let whole: Option<serde_json::Value> = serde_json::from_str(text).ok();
    if is_valid && whole.is_none() {
        return;
    }
    let paths: Vec<Vec<JsonStep<'_>>> =
        (0..6).map(|_| (0..random.below(4)).map(|_| random_step(random)).collect()).collect();
    let parse = |part: &str| -> serde_json::Value {
        assert_eq!(part, part.trim_ascii(), "{text}");
        serde_json::from_str(part).expect("a part of JSON is JSON")
    };
    for path in &paths {
        let expected = whole.as_ref().and_then(|it| expected_at(it, path));
        let found = find_json(text, path).map(parse);
        assert_eq!(found.as_ref(), expected, "{path:?} of {text}");
    }
    // Same in a single pass for all paths.
    let live: Vec<_> = paths
        .iter()
        .filter(|it| !it.is_empty())
        .filter_map(|it| Some((it, operators(it)?)))
        .collect();
    let columns: Vec<&str> = live.iter().map(|(_, it)| it.as_str()).collect();
    if columns.is_empty() {
        return;
    }
    let values = select_all(&columns.join(", "), text.as_bytes());
    for ((path, _), value) in live.iter().zip(values) {
        let found = match &value {
            Value::Json(raw) => Some(parse(raw)),
            _ => None,
        };
        let expected = whole.as_ref().and_then(|it| expected_at(it, path));
        assert_eq!(found.as_ref(), expected, "{path:?} of {text}");
    }
}

#[test]
fn strings_of_all_lengths_end_where_they_end() {
    const LENGTH_MAX: usize = 70;
    const PARTS: &[&str] =
        &["\"", "\\", "\\\"", "\\u0041", "\\u004", "\n", "\0", "\x1f", " ", "!", "\x7f", "\u{a2}"];
    for length in 0..=LENGTH_MAX {
        for at in 0..=length {
            for part in PARTS {
                let inside = format!("{}{part}{}", "x".repeat(at), "y".repeat(length - at));
                for text in [
                    format!("\"{inside}\""),
                    format!("\"{inside}"),
                    format!("{{\"{inside}\":\"{inside}\",\"k\":[\"{inside}\",1]}}"),
                ] {
                    let whole = serde_json::from_str::<serde_json::Value>(&text).ok();
                    let is_whole = find_json(&text, &[]).is_some();
                    assert_eq!(is_whole, whole.is_some(), "{text:?}");
                    let item = [JsonStep::Key("k"), JsonStep::Index(0)];
                    let found = find_json(&text, &item).map(|it| it.to_owned());
                    let is_there = whole.is_some_and(|it| it.is_object());
                    assert_eq!(found, is_there.then(|| format!("\"{inside}\"")), "{text:?}");
                }
            }
        }
    }
}

#[test]
fn a_repeated_key_that_lacks_the_rest_of_the_path_hides_what_stood_before() {
    let path = [JsonStep::Key("a"), JsonStep::Key("b"), JsonStep::Index(-1)];
    let cases = [
        (r#"{"a":{"b":[1,2]}}"#, Some("2")),
        (r#"{"a":{"b":[1,2]},"a":{"b":[ 3 ]}}"#, Some("3")),
        (r#"{"a":{"b":[1,2]},"a":{}}"#, None),
        (r#"{"a":{"b":[1,2]},"a":{"b":[]}}"#, None),
        (r#"{"a":{"b":[1,2],"b":7}}"#, None),
        (r#"{"a":{"b":[1,2]},"\u0061":[]}"#, None),
        (r#"{"a":{"b":[1,2]},"c":{"b":[]}}"#, Some("2")),
        (r#"{"a":{"b":[1,2]},"a":{"b":[3]}"#, None),
    ];
    for (text, expected) in cases {
        assert_eq!(find_json(text, &path), expected, "{text}");
    }
}

#[test]
fn nesting_without_end_is_no_json() {
    let nested = |count: usize| format!("{}1{}", "[".repeat(count), "]".repeat(count));
    assert!(is_json(nested(JSON_DEPTH_MAX).as_bytes()));
    assert!(!is_json(nested(JSON_DEPTH_MAX + 1).as_bytes()));
    assert!(!is_json("[{\"a\":".repeat(1_000_000).as_bytes()));
}

#[test]
fn nesting_counts_on_the_path_and_beside_it() {
    let nested = |count: usize| format!("{}1{}", "[".repeat(count), "]".repeat(count));
    let (most, too_much) = (nested(JSON_DEPTH_MAX), nested(JSON_DEPTH_MAX + 1));
    for length in [0, 1, 2, 100, JSON_DEPTH_MAX, JSON_DEPTH_MAX + 1] {
        for index in [0, -1] {
            let path = vec![JsonStep::Index(index); length];
            assert_eq!(find_json(&most, &path).is_some(), length <= JSON_DEPTH_MAX, "{length}");
            assert_eq!(find_json(&too_much, &path), None, "{length}");
        }
    }
}

#[test]
fn nesting_counts_on_the_paths_of_many_queries_too() {
    let nested = |count: usize| format!("{}1{}", "[".repeat(count), "]".repeat(count));
    for length in [1, 2, 100, JSON_DEPTH_MAX] {
        let mut paths = Paths::new();
        paths.take(&vec![Step::Index(0); length]).expect("one path is few");
        let mut fields = Fields::default();
        assert!(paths.read(nested(JSON_DEPTH_MAX).as_bytes(), &mut fields).is_some(), "{length}");
        let too_much = nested(JSON_DEPTH_MAX + 1);
        assert!(paths.read(too_much.as_bytes(), &mut fields).is_none(), "{length}");
    }
}

#[test]
fn a_declared_column_has_the_type_that_it_was_declared_with() {
    assert_eq!(select("declared + 1", br#"{"a":["x","41"]}"#), Value::Int(42));
    assert_eq!(select("declared", br#"{"a":["x",41]}"#), Value::Int(41));
    assert_eq!(select("declared", br#"{"a":[]}"#), Value::Null);
    assert_eq!(select("declared", b"no json"), Value::Null);
}

#[test]
fn a_field_of_a_query_is_what_was_written_and_null_is_null_in_all_types() {
    let all = |text: &str| select_all("n, j, s", text.as_bytes());
    let values = all(r#"{"n":-1.50,"j":{"a":[1]},"s":"null"}"#);
    assert_eq!(values[0].to_string(), "-1.50");
    assert_eq!(values[1..], [Value::Json(r#"{"a":[1]}"#.into()), Value::Text("null".into())]);
    let null = vec![Value::Null; 3];
    assert_eq!(all(r#"{"n":null,"j":null,"s":null}"#), null);
    assert_eq!(all("{}"), null);
    let text = r#"{"j":"null"}"#;
    assert_eq!(select("j", text.as_bytes()), Value::Json(r#""null""#.into()));
    let text = br#"{"j":{"a":[null,"x"]}}"#;
    assert_eq!(select("j->'a'->>1", text), Value::Text("x".into()));
    assert_eq!(select("j IS NULL", br#"{"j":null}"#), Value::Bool(true));
}
