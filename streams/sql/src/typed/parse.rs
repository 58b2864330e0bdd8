//! Parses `CREATE TABLE name (column type [PATH '$.path'], …) WITH (topic = '…', …)`.

use datafusion::sql::sqlparser::ast::{
    DataType as SqlType, ExactNumberInfo, Ident, ObjectNamePart, TimezoneInfo,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use live_queries::{Step, TableKind, Type};

use super::path;
use super::table::{OnError, TypedColumn, TypedTable};
use crate::definition::CURRENT_SUFFIX;
use crate::error::{SqlError, SqlState};

/// Schema of tables.
const SCHEMA: &str = "public";

/// Maximum number of columns of a table.
const COLUMN_COUNT_MAX: usize = 500;

impl TypedTable {
    /// Parses a CREATE TABLE statement.
    pub(crate) fn parse(statement: &str) -> Result<Self, SqlError> {
        let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(statement)?;
        parser.expect_keywords(&[Keyword::CREATE, Keyword::TABLE])?;
        // The caller handles IF NOT EXISTS.
        let _ = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
        let name = table_name(&mut parser)?;
        parser.expect_token(&Token::LParen)?;
        let columns = parser.parse_comma_separated(column)?;
        parser.expect_token(&Token::RParen)?;
        let columns = columns.into_iter().map(Parsed::checked);
        let columns: Vec<TypedColumn> = columns.collect::<Result<_, _>>()?;
        for (index, column) in columns.iter().enumerate() {
            if columns[..index].iter().any(|it| it.name == column.name) {
                let what = format!("column {:?} specified more than once", column.name);
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, what));
            }
        }
        if columns.len() > COLUMN_COUNT_MAX {
            let what = format!("tables can have at most {COLUMN_COUNT_MAX} columns");
            return Err(SqlError::new(SqlState::TOO_LARGE, what));
        }
        let mut table = Self {
            name,
            topic: String::new(),
            kind: TableKind::Log,
            on_error: OnError::Null,
            key: None,
            columns,
        };
        table.read_options(&mut parser)?;
        match parser.peek_token().token {
            Token::EOF => Ok(table),
            other => {
                let what = format!("syntax error at or near {:?}", other.to_string());
                Err(SqlError::new(SqlState::SYNTAX, what))
            }
        }
    }

    fn read_options(&mut self, parser: &mut Parser<'_>) -> Result<(), SqlError> {
        if parser.parse_keyword(Keyword::WITH) {
            parser.expect_token(&Token::LParen)?;
            let options = parser.parse_comma_separated(|parser| {
                let name = folded(&parser.parse_identifier()?);
                parser.expect_token(&Token::Eq)?;
                Ok((name, parser.parse_literal_string()?))
            })?;
            parser.expect_token(&Token::RParen)?;
            for (name, value) in options {
                self.set_option(&name, value)?;
            }
        }
        if self.topic.is_empty() {
            let what = format!("table {:?} requires the option \"topic\"", self.name);
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, what)
                .with_hint("CREATE TABLE … (…) WITH (topic = 'orders', format = 'json')"));
        }
        match &self.key {
            Some(key) if self.column(key).is_none() => {
                let what = format!("column {key:?} named in key does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_COLUMN, what))
            }
            _ => Ok(()),
        }
    }

    fn set_option(&mut self, name: &str, value: String) -> Result<(), SqlError> {
        match (name, value.as_str()) {
            ("topic", topic) => match topic.strip_suffix(CURRENT_SUFFIX) {
                Some(topic) => (self.topic, self.kind) = (topic.to_owned(), TableKind::Values),
                None => self.topic = value,
            },
            ("format", "json") => {}
            ("values", "log") => self.kind = TableKind::Log,
            ("values", "current") => self.kind = TableKind::Values,
            ("on_error", "null") => self.on_error = OnError::Null,
            ("on_error", "fail") => self.on_error = OnError::Fail,
            ("key", _) => self.key = Some(value),
            ("format" | "values" | "on_error", other) => {
                let what = format!("invalid value for option {name:?}: {other:?}");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER, what).with_hint(
                    "Valid values: format 'json'; values 'log' or 'current'; on_error 'null' or \
                     'fail'.",
                ));
            }
            _ => {
                let what = format!("unrecognized option {name:?} of CREATE TABLE");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER, what)
                    .with_hint("Supported options are topic, format, values, on_error and key."));
            }
        }
        Ok(())
    }
}

/// A column as written.
struct Parsed {
    name: String,
    sql_type: SqlType,
    path: Option<String>,
}

impl Parsed {
    fn checked(self) -> Result<TypedColumn, SqlError> {
        let Self { name, sql_type, path } = self;
        let path = match path {
            Some(path) => path::read(&path)?,
            None => vec![Step::Key(name.clone())],
        };
        let is_jsonb = sql_type == SqlType::JSONB;
        Ok(TypedColumn { name, path, data_type: type_of(&sql_type)?, is_jsonb })
    }
}

fn column(
    parser: &mut Parser<'_>,
) -> Result<Parsed, datafusion::sql::sqlparser::parser::ParserError> {
    let name = folded(&parser.parse_identifier()?);
    let sql_type = parser.parse_data_type()?;
    let has_path = matches!(&parser.peek_token().token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("path"));
    let path = match has_path {
        true => {
            parser.advance_token();
            Some(parser.parse_literal_string()?)
        }
        false => None,
    };
    Ok(Parsed { name, sql_type, path })
}

fn type_of(sql_type: &SqlType) -> Result<Type, SqlError> {
    Ok(match sql_type {
        SqlType::Boolean | SqlType::Bool => Type::Bool,
        SqlType::Int(None) | SqlType::Integer(None) | SqlType::Int4(None) => Type::Int4,
        SqlType::BigInt(None) | SqlType::Int8(None) => Type::Int8,
        SqlType::Numeric(info) | SqlType::Decimal(info) if *info == ExactNumberInfo::None => {
            Type::Numeric
        }
        SqlType::DoublePrecision | SqlType::Float8 => Type::Float8,
        SqlType::Text | SqlType::Varchar(None) => Type::Text,
        SqlType::JSON | SqlType::JSONB => Type::Json,
        SqlType::Timestamp(None, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            Type::Timestamptz
        }
        other => {
            let what = format!("columns of type {other} are not supported");
            return Err(SqlError::unsupported(what).with_hint(
                "Supported types are boolean, integer, bigint, numeric, double precision, text, \
                 json, jsonb and timestamptz.",
            ));
        }
    })
}

fn table_name(parser: &mut Parser<'_>) -> Result<String, SqlError> {
    let name = parser.parse_object_name(false)?;
    let parts: Option<Vec<&Ident>> = name.0.iter().map(ObjectNamePart::as_ident).collect();
    match parts.as_deref() {
        Some([name]) => Ok(folded(name)),
        Some([schema, name]) if schema.value == SCHEMA => Ok(folded(name)),
        _ => {
            let what = format!("tables can be created only in schema {SCHEMA:?}, not as {name}");
            Err(SqlError::unsupported(what))
        }
    }
}

/// Folds unquoted identifiers to lower case.
fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_declared_with_their_types_and_paths() {
        let table = TypedTable::parse(
            "CREATE TABLE IF NOT EXISTS public.Trades (symbol text, \"Qty\" bigint, \
             bid double precision PATH '$.quote.bid', at timestamptz, note json, live boolean, \
             n int, exact numeric, more jsonb) WITH (topic = 'orders$current', format = 'json', \
             on_error = 'fail', key = 'symbol')",
        )
        .expect("a good statement");
        assert_eq!((table.name.as_str(), table.topic.as_str()), ("trades", "orders"));
        assert_eq!((table.kind, table.on_error), (TableKind::Values, OnError::Fail));
        let types: Vec<_> = table.columns.iter().map(|it| it.data_type).collect();
        let expected = [
            Type::Text,
            Type::Int8,
            Type::Float8,
            Type::Timestamptz,
            Type::Json,
            Type::Bool,
            Type::Int4,
            Type::Numeric,
            Type::Json,
        ];
        assert_eq!(types, expected);
        assert!(table.is_jsonb("more") && !table.is_jsonb("note"));
        assert_eq!(table.columns[1].path, [Step::Key("Qty".to_owned())]);
        assert_eq!(table.columns[2].path.len(), 2);
    }

    #[test]
    fn what_cannot_be_declared_is_refused() {
        for (text, state) in [
            ("CREATE TABLE t (a text)", SqlState::INVALID_PARAMETER),
            (
                "CREATE TABLE t (a text) WITH (topic = 'x', color = 'red')",
                SqlState::INVALID_PARAMETER,
            ),
            (
                "CREATE TABLE t (a text) WITH (topic = 'x', format = 'avro')",
                SqlState::INVALID_PARAMETER,
            ),
            ("CREATE TABLE t (a text, a int) WITH (topic = 'x')", SqlState::DUPLICATE_COLUMN),
            ("CREATE TABLE t (a point) WITH (topic = 'x')", SqlState::NOT_SUPPORTED),
            ("CREATE TABLE t (a varchar(3)) WITH (topic = 'x')", SqlState::NOT_SUPPORTED),
            ("CREATE TABLE t (a text PATH 'b') WITH (topic = 'x')", SqlState::SYNTAX),
            ("CREATE TABLE t (a text) WITH (topic = 'x', key = 'b')", SqlState::UNDEFINED_COLUMN),
            ("CREATE TABLE other.t (a text) WITH (topic = 'x')", SqlState::NOT_SUPPORTED),
            ("CREATE TABLE t () WITH (topic = 'x')", SqlState::SYNTAX),
            ("CREATE TABLE t (a text) WITH (topic = 'x') x", SqlState::SYNTAX),
        ] {
            assert_eq!(TypedTable::parse(text).expect_err(text).state, state, "{text}");
        }
    }
}
