//! Entry points for fuzz targets: parse bytes and texts from clients as the server does.

use bytes::BytesMut;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::statements::{Words, read_command, split};
use crate::typed::TypedTable;
use crate::wire::{Format, PgType, Request, read_parameter, take_request, take_startup};

const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Parameter types by PostgreSQL's object ids.
const TYPES: &[u32] = &[16, 17, 20, 21, 23, 25, 26, 700, 701, 1082, 1083, 1114, 1184, 1186, 1700];

/// Parses the bytes of a connection: startup messages first if the first byte is odd, then
/// requests.
pub fn messages(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let mut buffer = BytesMut::from(rest);
    if first % 2 == 1 {
        while let Ok(Some(_)) = take_startup(&mut buffer) {}
    }
    while let Ok(Some(request)) = take_request(&mut buffer, MESSAGE_BYTES_MAX) {
        match request {
            Request::Query(text) => texts(&text),
            Request::Parse { text, .. } => texts(&text),
            Request::Bind(bind) => {
                for bytes in &bind.parameters {
                    parameter(bytes.as_deref());
                }
            }
            _ => {}
        }
    }
}

/// Parses a text of statements.
pub fn texts(text: &str) {
    drop(TypedTable::parse(text));
    let Ok(statements) = split(text) else { return };
    for words in &statements {
        drop((words.parameter_count(), read_command(words).is_ok()));
        let source = words.source(&str::to_owned);
        let again =
            split(&source).unwrap_or_else(|error| panic!("{error}: {source:?} of {text:?}"));
        assert_eq!(again.len(), 1, "a statement is one statement again: {words}");
        assert_eq!(shown(&again[0]), shown(words));
    }
}

/// Returns the words, with string literals in a single notation.
fn shown(words: &Words) -> Vec<String> {
    let shown = |token: &Token| match token {
        Token::EscapedStringLiteral(text)
        | Token::UnicodeStringLiteral(text)
        | Token::NationalStringLiteral(text) => Token::SingleQuotedString(text.clone()).to_string(),
        other => other.to_string(),
    };
    words.iter().map(shown).collect()
}

/// Parses a parameter value as each type, in both formats.
fn parameter(bytes: Option<&[u8]>) {
    let typed = |oid: &u32| PgType::data_type_of(*oid).map(|data_type| (*oid, data_type));
    for (oid, data_type) in TYPES.iter().filter_map(typed) {
        for format in [Format::TEXT, Format::Binary] {
            drop(read_parameter(bytes, format, (oid, &data_type)));
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Random;

    use super::*;

    const INPUTS: &[&str] = &[
        "SELECT 'it''s', E'\\x41', $$a$b$$, U&'\\0041', \"a \"\"b\", $2 -- end",
        "INSERT INTO t (key, value) VALUES ('a', '{\"qty\": 1}'), ($1, NULL)",
        "CREATE TABLE t (a text PATH '$.a[0].\"b\"') WITH (topic = 'orders')",
        "DECLARE c CURSOR FOR SUBSCRIBE (SELECT * FROM t); FETCH 7 FROM c; /* a /* b */ c */",
    ];

    #[test]
    fn changed_inputs_are_read_or_refused() {
        let mut random = Random::new(7);
        let (mut read, count) = (0, 20_000);
        for _ in 0..count {
            let text = random.pick(INPUTS);
            let mut message = vec![0, b'Q'];
            let length = u32::try_from(text.len() + 5).expect("a short text");
            message.extend(length.to_be_bytes());
            message.extend(text.bytes());
            message.push(0);
            for _ in 0..random.below(4) {
                let at = random.index(message.len());
                message[at] = random.pick(b"\0\x01'\"$(),;\\abU&E/*-\xc3\xa4\xff");
            }
            read += usize::from(split(&String::from_utf8_lossy(&message[6..])).is_ok());
            messages(&message);
        }
        assert!(read > count / 20, "{read} of {count} were read");
    }
}
