//! What counts as JSON, and what stands at a path of it, as serde_json has it.

use live_queries::{
    ColumnSource, Fields, Paths, Query, Record, Row, Step, Table, TableColumn, Type, Value,
    parse_query,
};
use model::{Random, for_each_seed};

/// The query's column of the record whose value is `text`.
fn select(expression: &str, text: &[u8]) -> Value<'static> {
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
    let mut paths = Paths::new();
    let query = parse_query(&format!("SELECT {expression} FROM t")).expect("it is a query");
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
    let mut values = query.project(&row).expect("it has no groups").expect("nothing fails");
    values.remove(0)
}

fn is_json(text: &[u8]) -> bool {
    !select("document", text).is_null()
}

/// JSON of a few levels, with repeated keys, escapes and spaces.
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
            // Often broken by another byte, by a missing one, or by an end.
            if random.one_in(2) {
                let at = random.index(text.len());
                match random.below(3) {
                    0 => text[at] = random.pick(b"\"\\{}[]:,0e-. \x01\xff"),
                    1 => drop(text.remove(at)),
                    _ => text.truncate(at),
                }
            }
            // By the grammar alone: numbers of any size, and escapes that no text can hold.
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
                // A pointer takes "0" for a key and an index; SQL tells them apart.
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

#[test]
fn nesting_without_end_is_no_json() {
    let nested = |count: usize| format!("{}1{}", "[".repeat(count), "]".repeat(count));
    assert!(is_json(nested(live_queries::limits::JSON_DEPTH_MAX).as_bytes()));
    assert!(!is_json(nested(live_queries::limits::JSON_DEPTH_MAX + 1).as_bytes()));
    assert!(!is_json("[{\"a\":".repeat(1_000_000).as_bytes()));
}

#[test]
fn a_declared_column_has_the_type_that_it_was_declared_with() {
    assert_eq!(select("declared + 1", br#"{"a":["x","41"]}"#), Value::Int(42));
    assert_eq!(select("declared", br#"{"a":["x",41]}"#), Value::Int(41));
    assert_eq!(select("declared", br#"{"a":[]}"#), Value::Null);
    assert_eq!(select("declared", b"no json"), Value::Null);
}
