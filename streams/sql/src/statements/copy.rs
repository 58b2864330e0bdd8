//! Parsing of COPY: source, target and options.

use datafusion::sql::sqlparser::tokenizer::Token;
use live_queries::CopyFormat;

use super::text::{Words, name_of, split};
use crate::error::{SqlError, SqlState};
use crate::wire::{CopyForm, CopyHeader};

/// Options of PostgreSQL that are not supported.
const NOT_SUPPORTED: &[&str] = &["FORCE_NOT_NULL", "FORCE_NULL", "FORCE_QUOTE", "FREEZE"];

/// A COPY whose query or table is not parsed yet.
pub(super) enum Copy {
    Out {
        /// Query.
        rows: Words,
        form: CopyForm,
    },
    In {
        /// INSERT into the same table and columns, which determines the permission and the column
        /// types.
        insert: Words,
        /// Column list. Empty if it consists of all declared columns of a typed table.
        columns: Vec<String>,
        form: CopyForm,
    },
}

/// Parses `COPY (query) TO STDOUT`, `COPY table [(columns)] TO STDOUT` or `COPY table [(columns)]
/// FROM STDIN`, each with its options.
pub(super) fn read_copy(words: &Words) -> Result<Copy, SqlError> {
    let (at, is_in) = direction(words)?;
    let (before, rest) = words.0.split_at(at);
    let named = Words(before.to_vec()).after(1);
    let rest = Words(rest.to_vec());
    let hint = match is_in {
        true => "Use COPY FROM STDIN, or psql's \\copy command for a file on the client.",
        false => "Use COPY TO STDOUT, or psql's \\copy command for a file on the client.",
    };
    // As in PostgreSQL, both names mean the client.
    if !matches!(rest.keyword(1).as_str(), "STDIN" | "STDOUT") {
        let what = "COPY from or to a file or program on the server is not supported";
        return Err(SqlError::unsupported(what).with_hint(hint));
    }
    let form = Options::read(&rest.after(2), is_in)?;
    let is_query = named.iter().next() == Some(&Token::LParen);
    match (is_query, is_in) {
        (true, true) => Err(syntax("syntax error: COPY FROM requires a table")),
        (true, false) => Ok(Copy::Out { rows: inside(&named)?, form }),
        (false, true) => copy_in(&named, form),
        (false, false) => {
            let (table, columns) = table(&named)?;
            let columns = columns.map_or_else(|| "*".to_owned(), |it| text(&it));
            let rows = statement(&format!("SELECT {columns} FROM {table}"))?;
            Ok(Copy::Out { rows, form })
        }
    }
}

/// Finds TO or FROM. Returns its index and whether it is FROM.
fn direction(words: &Words) -> Result<(usize, bool), SqlError> {
    let mut depth = 0_usize;
    for (index, token) in words.0.iter().enumerate() {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Word(word) if depth == 0 && word.quote_style.is_none() => {
                let is_in = word.value.eq_ignore_ascii_case("FROM");
                if is_in || word.value.eq_ignore_ascii_case("TO") {
                    return Ok((index, is_in));
                }
            }
            _ => {}
        }
    }
    Err(syntax("syntax error: COPY requires TO or FROM"))
}

fn copy_in(named: &Words, form: CopyForm) -> Result<Copy, SqlError> {
    let (table, columns) = table(named)?;
    let Some(columns) = columns else {
        let insert = statement(&format!("INSERT INTO {table} VALUES (NULL)"))?;
        return Ok(Copy::In { insert, columns: Vec::new(), form });
    };
    let insert = statement(&format!("INSERT INTO {table} ({}) VALUES (NULL)", text(&columns)))?;
    let names = columns.iter().step_by(2).map(|it| name_of(Some(it)));
    let columns = names.collect::<Result<_, _>>()?;
    Ok(Copy::In { insert, columns, form })
}

/// Parses a table name with an optional column list.
fn table(named: &Words) -> Result<(String, Option<Words>), SqlError> {
    let open = named.0.iter().position(|it| it.token == Token::LParen);
    let (table, columns) = match open {
        None => (named.clone(), None),
        Some(at) => (Words(named.0[..at].to_vec()), Some(inside(&Words(named.0[at..].to_vec()))?)),
    };
    let are = |words: &Words, between: &Token| {
        let mut tokens = words.iter().enumerate();
        words.iter().count() % 2 == 1
            && tokens.all(|(index, it)| match index % 2 {
                0 => matches!(it, Token::Word(_)),
                _ => it == between,
            })
    };
    if !are(&table, &Token::Period) || columns.as_ref().is_some_and(|it| !are(it, &Token::Comma)) {
        return Err(syntax(
            "syntax error: COPY requires a query in parentheses, or a table with optional column \
             names",
        ));
    }
    Ok((text(&table), columns))
}

/// Returns the words inside the parentheses that enclose `words`.
fn inside(words: &Words) -> Result<Words, SqlError> {
    let open = words.0.iter().position(|it| it.token == Token::LParen);
    let close = words.0.iter().rposition(|it| it.token == Token::RParen);
    let is_last = |at: usize| Words(words.0[at + 1..].to_vec()).iter().next().is_none();
    match (open, close) {
        (Some(open), Some(close)) if open < close && is_last(close) => {
            Ok(Words(words.0[open + 1..close].to_vec()).after(0))
        }
        _ => Err(syntax("syntax error: missing parenthesis")),
    }
}

fn statement(text: &str) -> Result<Words, SqlError> {
    let mut statements = split(text)?;
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err(syntax("syntax error: COPY requires a table or a query")),
    }
}

fn text(words: &Words) -> String {
    words.source(&|name| name.to_owned())
}

fn syntax(what: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX, what)
}

/// Options as written, before their combination is checked.
#[derive(Default)]
struct Options {
    format: Option<CopyFormat>,
    header: Option<CopyHeader>,
    delimiter: Option<String>,
    null: Option<String>,
    quote: Option<String>,
    escape: Option<String>,
    encoding: Option<String>,
}

impl Options {
    /// Parses `[WITH] (name [value], …)`, or the syntax from before PostgreSQL 9.0.
    fn read(words: &Words, is_in: bool) -> Result<CopyForm, SqlError> {
        let tokens: Vec<_> = words.iter().collect();
        let is_with = words.keyword(0) == "WITH";
        let tokens = &tokens[usize::from(is_with)..];
        let mut options = Self::default();
        match tokens {
            [Token::LParen, list @ .., Token::RParen] => {
                for option in list.split(|it| **it == Token::Comma) {
                    options.named(option)?;
                }
            }
            plain => options.plain(plain)?,
        }
        options.form(is_in)
    }

    fn named(&mut self, option: &[&Token]) -> Result<(), SqlError> {
        let name = option.first().map(|it| word(it)).unwrap_or_default();
        let value = match option {
            [_] => None,
            [_, value] => Some(value_of(value)),
            _ => return Err(not_taken(&name)),
        };
        let needed = || {
            value.clone().ok_or_else(|| syntax(&format!("COPY option {name} requires a parameter")))
        };
        match name.as_str() {
            "FORMAT" => set(&mut self.format, format_of(&needed()?)?),
            "HEADER" => set(&mut self.header, header_of(value.as_deref())?),
            "DELIMITER" => set(&mut self.delimiter, needed()?),
            "NULL" => set(&mut self.null, needed()?),
            "QUOTE" => set(&mut self.quote, needed()?),
            "ESCAPE" => set(&mut self.escape, needed()?),
            "ENCODING" => set(&mut self.encoding, needed()?),
            _ => Err(not_taken(&name)),
        }
    }

    fn plain(&mut self, mut rest: &[&Token]) -> Result<(), SqlError> {
        while let Some((first, behind)) = rest.split_first() {
            let name = word(first);
            rest = behind;
            let as_count = usize::from(rest.first().is_some_and(|it| word(it) == "AS"));
            let mut value = || {
                let (value, behind) = (rest.get(as_count), rest.get(as_count + 1..));
                rest = behind.unwrap_or_default();
                value
                    .map(|it| value_of(it))
                    .ok_or_else(|| syntax(&format!("COPY option {name} requires a parameter")))
            };
            match name.as_str() {
                "CSV" => set(&mut self.format, CopyFormat::Csv),
                "BINARY" => set(&mut self.format, CopyFormat::Binary),
                "HEADER" => set(&mut self.header, CopyHeader::Names),
                "DELIMITER" => set(&mut self.delimiter, value()?),
                "NULL" => set(&mut self.null, value()?),
                "QUOTE" => set(&mut self.quote, value()?),
                "ESCAPE" => set(&mut self.escape, value()?),
                "ENCODING" => set(&mut self.encoding, value()?),
                "WHERE" => {
                    return Err(SqlError::unsupported("COPY FROM with WHERE is not supported"));
                }
                "FORCE" => return Err(not_taken("FORCE_QUOTE")),
                _ => return Err(not_taken(&name)),
            }?;
        }
        Ok(())
    }

    /// Returns the format, if the options are compatible.
    fn form(self, is_in: bool) -> Result<CopyForm, SqlError> {
        let format = self.format.unwrap_or(CopyFormat::Text);
        let (is_csv, plain) = (format == CopyFormat::Csv, CopyForm::of(format));
        if format == CopyFormat::Binary {
            let given = [("DELIMITER", &self.delimiter), ("NULL", &self.null)];
            if let Some((name, _)) = given.iter().find(|it| it.1.is_some()) {
                return Err(syntax(&format!("cannot specify {name} in BINARY mode")));
            }
            if self.header.is_some_and(|it| it != CopyHeader::None) {
                return Err(SqlError::unsupported("cannot specify HEADER in BINARY mode"));
            }
        }
        if self.encoding.is_some_and(|it| !is_utf8(&it)) {
            return Err(SqlError::unsupported(
                "COPY with an encoding other than UTF8 is not supported",
            ));
        }
        if self.header == Some(CopyHeader::Match) && !is_in {
            return Err(SqlError::unsupported("cannot use \"match\" with HEADER in COPY TO"));
        }
        let given = [("quote", &self.quote), ("escape", &self.escape)];
        if let Some((name, _)) = given.iter().find(|it| !is_csv && it.1.is_some()) {
            let what = format!("COPY {name} available only in CSV mode");
            return Err(SqlError::unsupported(what));
        }
        let byte = |name: &str, value: Option<String>, other: u8| match value.as_deref() {
            None => Ok(other),
            Some(text) if text.len() == 1 => Ok(text.as_bytes()[0]),
            Some(_) => {
                let what = format!("COPY {name} must be a single one-byte character");
                Err(SqlError::unsupported(what))
            }
        };
        let delimiter = byte("delimiter", self.delimiter, plain.delimiter)?;
        let quote = byte("quote", self.quote, plain.quote)?;
        let escape = byte("escape", self.escape, quote)?;
        let null = self.null.unwrap_or(plain.null);
        let header = self.header.unwrap_or(plain.header);
        let form = CopyForm { format, header, delimiter, null, quote, escape };
        check(&form)?;
        Ok(form)
    }
}

fn check(form: &CopyForm) -> Result<(), SqlError> {
    let is_csv = form.format == CopyFormat::Csv;
    let invalid = |what: String| Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
    let has = |byte: u8| form.null.as_bytes().contains(&byte);
    if matches!(form.delimiter, b'\n' | b'\r') {
        return invalid("COPY delimiter cannot be newline or carriage return".to_owned());
    }
    if has(b'\n') || has(b'\r') {
        return invalid(
            "COPY null representation cannot use newline or carriage return".to_owned(),
        );
    }
    // Lower-case letters and digits occur in backslash escapes.
    let is_taken = matches!(form.delimiter, b'\\' | b'.' | b'a'..=b'z' | b'0'..=b'9');
    if form.format == CopyFormat::Text && is_taken {
        return invalid(format!("COPY delimiter cannot be {:?}", char::from(form.delimiter)));
    }
    if form.format != CopyFormat::Binary && has(form.delimiter) {
        let what = "COPY delimiter must not appear in the NULL specification";
        return Err(SqlError::unsupported(what));
    }
    if is_csv && form.delimiter == form.quote {
        return invalid("COPY delimiter and quote must be different".to_owned());
    }
    if is_csv && has(form.quote) {
        let what = "CSV quote character must not appear in the NULL specification";
        return Err(SqlError::unsupported(what));
    }
    Ok(())
}

fn set<T>(option: &mut Option<T>, value: T) -> Result<(), SqlError> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(syntax("conflicting or redundant options")),
    }
}

fn not_taken(name: &str) -> SqlError {
    if NOT_SUPPORTED.contains(&name) {
        return SqlError::unsupported(format!("COPY with {name} is not supported"));
    }
    syntax(&format!("option {:?} not recognized", name.to_lowercase())).with_hint(
        "Supported options are FORMAT, HEADER, DELIMITER, NULL, QUOTE, ESCAPE and ENCODING.",
    )
}

/// Returns an unquoted word in upper case, or an empty string for other tokens.
fn word(token: &Token) -> String {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_uppercase(),
        _ => String::new(),
    }
}

fn value_of(token: &Token) -> String {
    match token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
        Token::DollarQuotedString(text) => text.value.clone(),
        Token::Word(word) => word.value.clone(),
        other => other.to_string(),
    }
}

fn format_of(name: &str) -> Result<CopyFormat, SqlError> {
    match name.to_ascii_lowercase().as_str() {
        "text" => Ok(CopyFormat::Text),
        "csv" => Ok(CopyFormat::Csv),
        "binary" => Ok(CopyFormat::Binary),
        _ => {
            let what = format!("COPY format {name:?} not recognized");
            Err(SqlError::new(SqlState::INVALID_PARAMETER, what))
        }
    }
}

fn header_of(value: Option<&str>) -> Result<CopyHeader, SqlError> {
    match value.unwrap_or("true").to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(CopyHeader::Names),
        "false" | "off" | "0" => Ok(CopyHeader::None),
        "match" => Ok(CopyHeader::Match),
        _ => Err(syntax("header requires a Boolean value or \"match\"")),
    }
}

fn is_utf8(name: &str) -> bool {
    ["utf8", "utf-8", "unicode"].iter().any(|it| name.eq_ignore_ascii_case(it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::command::{Command, CursorSource, read_command};

    fn read(text: &str) -> Result<Command, SqlError> {
        read_command(&split(text)?[0])
    }

    #[test]
    fn tables_and_queries_are_copied_out_in_a_form() {
        let of = CopyForm::of;
        let csv = CopyForm { header: CopyHeader::Names, ..of(CopyFormat::Csv) };
        for (text, query, expected) in [
            ("copy t to stdout", "SELECT * FROM t", of(CopyFormat::Text)),
            (
                "COPY public.\"T t\" (a, \"B\") TO STDOUT (FORMAT csv, HEADER)",
                "SELECT a, \"B\" FROM public.\"T t\"",
                csv.clone(),
            ),
            ("copy (select (1)) to stdout with csv header", "SELECT (1)", csv),
            ("copy t to stdout with (format 'binary')", "SELECT * FROM t", of(CopyFormat::Binary)),
            (
                "copy t to stdout delimiter as ';' null '-'",
                "SELECT * FROM t",
                CopyForm { delimiter: b';', null: "-".to_owned(), ..of(CopyFormat::Text) },
            ),
            (
                "copy t to stdout (format csv, quote '''', escape E'\\\\', header off, \
                 encoding 'UTF8')",
                "SELECT * FROM t",
                CopyForm { quote: b'\'', escape: b'\\', ..of(CopyFormat::Csv) },
            ),
        ] {
            let Ok(Command::CopyOut { source: CursorSource::Query(found), form }) = read(text)
            else {
                panic!("{text}: {:?}", read(text))
            };
            assert_eq!((found.to_string().as_str(), form), (query, expected), "{text}");
        }
    }

    #[test]
    fn columns_of_tables_are_copied_in() {
        let Ok(Command::CopyIn { insert, columns, form }) =
            read("COPY orders (key, \"Value\") FROM STDIN WITH (FORMAT csv, HEADER match)")
        else {
            panic!("it is one")
        };
        let insert = insert.to_string();
        assert_eq!(insert, "INSERT INTO orders (key, \"Value\") VALUES (NULL)");
        assert_eq!(columns, ["key", "Value"]);
        assert_eq!((form.format, form.header), (CopyFormat::Csv, CopyHeader::Match));
    }

    #[test]
    fn what_is_not_taken_is_refused_with_postgresqls_codes() {
        for (text, state) in [
            ("copy t to '/tmp/x'", "0A000"),
            ("copy t from program 'x'", "0A000"),
            ("copy t (a) from stdin where a = 1", "0A000"),
            ("copy (select 1) from stdin", "42601"),
            ("copy t", "42601"),
            ("copy t (a + 1) to stdout", "42601"),
            ("copy t (a b) to stdout", "42601"),
            ("copy (insert into t (a) values (1)) to stdout", "0A000"),
            ("copy t to stdout (format x)", "22023"),
            ("copy t to stdout (nothing)", "42601"),
            ("copy t to stdout (delimiter ',', delimiter ';')", "42601"),
            ("copy t to stdout (delimiter ';;')", "0A000"),
            ("copy t to stdout (delimiter 'a')", "22023"),
            ("copy t to stdout (quote '''')", "0A000"),
            ("copy t to stdout (format csv, quote ',')", "22023"),
            ("copy t to stdout (format csv, null 'a,b')", "0A000"),
            ("copy t to stdout (null E'\\n')", "22023"),
            ("copy t to stdout (format binary, header)", "0A000"),
            ("copy t to stdout (format binary, null 'x')", "42601"),
            ("copy t to stdout (header match)", "0A000"),
            ("copy t to stdout (header maybe)", "42601"),
            ("copy t to stdout (force_quote *)", "0A000"),
            ("copy t to stdout (encoding 'latin1')", "0A000"),
        ] {
            assert_eq!(read(text).expect_err(text).state.0, state, "{text}");
        }
    }
}
