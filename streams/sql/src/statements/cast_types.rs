//! Types of parameters from their casts: `$1::int8` and `CAST($1 AS int8)` make `$1` a bigint, as
//! in PostgreSQL.

use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType, ExactNumberInfo, TimezoneInfo};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::Words;
use crate::wire::{JSONB, PgType, UUID};

/// Maximum words of a type's name, as in `timestamp (6) with time zone []`.
const NAME_WORDS_MAX: usize = 12;

/// Largest precision in bits of a `float` that is a real.
const FLOAT4_BITS_MAX: u64 = 24;

impl Words {
    /// Returns the declared types of the parameters, `$1` first. A parameter without one has the
    /// type to which its first occurrence is cast, and 0 if it is not cast.
    pub(crate) fn declared_or_cast(&self, declared: &[u32]) -> Vec<u32> {
        let words: Vec<_> = self.iter().collect();
        let mut types = declared.to_vec();
        let mut is_seen = vec![false; types.len()];
        for (index, word) in words.iter().enumerate() {
            let Token::Placeholder(name) = word else { continue };
            let number = name.strip_prefix('$').and_then(|it| it.parse::<u16>().ok());
            let Some(place) = number.and_then(|it| usize::from(it).checked_sub(1)) else {
                continue;
            };
            if types.len() <= place {
                types.resize(place + 1, 0);
            }
            is_seen.resize(types.len(), false);
            if !is_seen[place] && matches!(types[place], 0 | PgType::UNKNOWN) {
                types[place] = cast_at(&words, index).unwrap_or(types[place]);
            }
            is_seen[place] = true;
        }
        types
    }
}

/// Returns the type to which the word at an index is cast.
fn cast_at(words: &[&Token], index: usize) -> Option<u32> {
    let is_keyword = |at: Option<&&Token>, keyword: &str| match at {
        Some(Token::Word(word)) => {
            word.quote_style.is_none() && word.value.eq_ignore_ascii_case(keyword)
        }
        _ => false,
    };
    let before = |count: usize| index.checked_sub(count).and_then(|at| words.get(at));
    let is_cast = matches!(before(1), Some(Token::LParen)) && is_keyword(before(2), "cast");
    let begin = match words.get(index + 1) {
        Some(Token::DoubleColon) => index + 2,
        after if is_cast && is_keyword(after, "as") => index + 2,
        _ => return None,
    };
    let name = words[begin.min(words.len())..].iter().take(NAME_WORDS_MAX);
    let name = name.map(|it| (*it).clone()).collect();
    let mut parser = Parser::new(&PostgreSqlDialect {}).with_tokens(name);
    oid_of(&parser.parse_data_type().ok()?)
}

/// Returns the object id of a type of which parameters can be.
fn oid_of(data_type: &DataType) -> Option<u32> {
    let has_zone = |it: &TimezoneInfo| matches!(it, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz);
    Some(match data_type {
        DataType::Bool | DataType::Boolean => PgType::BOOL.oid,
        DataType::Bytea => PgType::BYTEA.oid,
        DataType::BigInt(_) | DataType::Int8(_) => PgType::INT8.oid,
        DataType::SmallInt(_) | DataType::Int2(_) => PgType::INT2.oid,
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => PgType::INT4.oid,
        DataType::Text => PgType::TEXT.oid,
        DataType::Varchar(_) | DataType::CharacterVarying(_) => PgType::VARCHAR,
        DataType::Char(_) | DataType::Character(_) => PgType::BPCHAR,
        DataType::JSON => PgType::JSON.oid,
        DataType::JSONB => JSONB,
        DataType::Uuid => UUID,
        DataType::Float(ExactNumberInfo::Precision(bits)) if *bits <= FLOAT4_BITS_MAX => {
            PgType::FLOAT4.oid
        }
        DataType::Real | DataType::Float4 => PgType::FLOAT4.oid,
        DataType::Float(_) | DataType::Float8 | DataType::DoublePrecision => PgType::FLOAT8.oid,
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => PgType::NUMERIC.oid,
        DataType::Regclass => PgType::REGCLASS,
        DataType::Date => PgType::DATE.oid,
        DataType::Time(_, zone) if !has_zone(zone) => PgType::TIME.oid,
        DataType::Timestamp(_, zone) if has_zone(zone) => PgType::TIMESTAMPTZ.oid,
        DataType::Timestamp(..) => PgType::TIMESTAMP.oid,
        DataType::Interval { .. } => PgType::INTERVAL.oid,
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => {
            PgType::array_oid(oid_of(element)?)?
        }
        DataType::Custom(name, _) => {
            let name = name.to_string().to_ascii_lowercase();
            match name.strip_prefix("pg_catalog.").unwrap_or(&name) {
                "bool" => PgType::BOOL.oid,
                "int2" => PgType::INT2.oid,
                "int4" => PgType::INT4.oid,
                "int8" => PgType::INT8.oid,
                "float4" => PgType::FLOAT4.oid,
                "float8" => PgType::FLOAT8.oid,
                "numeric" => PgType::NUMERIC.oid,
                "text" => PgType::TEXT.oid,
                "varchar" => PgType::VARCHAR,
                "bpchar" => PgType::BPCHAR,
                "\"char\"" => PgType::CHAR,
                "name" => PgType::NAME,
                "oid" => PgType::OID.oid,
                "regclass" => PgType::REGCLASS,
                "bytea" => PgType::BYTEA.oid,
                "json" => PgType::JSON.oid,
                "jsonb" => JSONB,
                "date" => PgType::DATE.oid,
                "time" => PgType::TIME.oid,
                "timestamp" => PgType::TIMESTAMP.oid,
                "timestamptz" => PgType::TIMESTAMPTZ.oid,
                "interval" => PgType::INTERVAL.oid,
                _ => return None,
            }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::split;

    #[test]
    fn the_first_cast_of_a_parameter_is_its_type() {
        let check = |text: &str, declared: &[u32], expected: &[u32]| {
            let words = split(text).expect("words").remove(0);
            assert_eq!(words.declared_or_cast(declared), expected, "{text}");
        };
        check("SELECT $1::int8, $2::pg_catalog.int4, $3", &[], &[20, 23, 0]);
        check("SELECT cast($1 AS numeric(10, 2)), CAST ( $2 AS text[] )", &[], &[1700, 1009]);
        check("SELECT $2::timestamp (3) with time zone, $1::timestamp", &[], &[1114, 1184]);
        check("SELECT $1::int8 WHERE $1::text = 'a'", &[], &[20]);
        check("SELECT $1 WHERE $1::int8 = 1", &[], &[0]);
        check("SELECT $1::int8, $2::int8, $3::int8", &[25, 0, 705], &[25, 20, 20]);
        check(
            "SELECT $1::\"char\", $2::char, $3::varchar(5)[], $4::money",
            &[],
            &[18, 1042, 1015, 0],
        );
        check("SELECT $1::regclass, $2::real, $3::float(53), $4::", &[], &[2205, 700, 701, 0]);
        check("SELECT $1::uuid, $2::uuid[], $3::bytea[]", &[], &[2950, 2951, 1001]);
    }
}
