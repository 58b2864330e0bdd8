//! PostgreSQL's protocol, version 3: messages in both directions, and values in both formats.
//!
//! Input from clients is not trusted: lengths and counts are validated before use. Source:
//! PostgreSQL's documentation, "Frontend/Backend Protocol".

mod answers;
mod arrays;
mod copy;
mod copy_form;
mod copy_in;
mod live;
mod numbers;
mod numerics;
mod parameters;
mod requests;
mod types;
mod values;

pub(crate) use answers::{Answers, TransactionState};
pub(crate) use arrays::array_elements;
pub(crate) use copy::{CopyOut, put_copy_row};
pub(crate) use copy_form::{CopyForm, CopyHeader};
pub(crate) use copy_in::{CopiedRow, CopyIn};
pub(crate) use live::{put_live_row, put_live_value};
pub(crate) use numbers::{DAY_US, IntervalStyle, civil, decimal_text};
pub(crate) use parameters::{bytea_of, read_copied, read_parameter, text_of};
pub(crate) use requests::{Bind, Request, SYNC, Startup, Target, take_request, take_startup};
pub(crate) use types::{
    Format, Formats, JSONB, PgType, UUID, described_field, json_field, jsonb_field,
};
pub(crate) use values::{output_texts, put_copy_rows, put_rows, put_texts};
