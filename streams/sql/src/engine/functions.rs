//! PostgreSQL's session information functions.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

use super::names::{DATABASE, SCHEMA};
use crate::host::Client;

/// Version of PostgreSQL reported to clients, whose catalogue and SQL are closest to this server's.
pub(crate) const SERVER_VERSION: &str = "15.0";

/// Returns the functions for one connection.
pub(crate) fn functions(client: &Client) -> Vec<Arc<ScalarUDF>> {
    let (user, login) = (client.name(), client.principal.name());
    let version = format!("PostgreSQL {SERVER_VERSION} (Memlane {})", env!("CARGO_PKG_VERSION"));
    [
        ("version", version.as_str()),
        ("current_database", DATABASE),
        ("current_catalog", DATABASE),
        ("current_schema", SCHEMA),
        ("current_user", user),
        ("session_user", login),
        ("pg_client_encoding", "UTF8"),
        ("user", user),
        ("current_role", user),
    ]
    .into_iter()
    .map(|(name, value)| Arc::new(constant(name, value)))
    .collect()
}

fn constant(name: &str, value: &str) -> ScalarUDF {
    let value = ScalarValue::Utf8(Some(value.to_owned()));
    let body = Arc::new(move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(value.clone())));
    create_udf(name, Vec::new(), DataType::Utf8, Volatility::Stable, body)
}
