//! Compares the guide's table of requests with the versions that a broker announces and serves.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{self as of, ApiKey, RequestHeader, ResponseKind};
use kafka_protocol::protocol::{Encodable, StrBytes};

use crate::{ADMIN, Asked, Connection, Fixture, asking};

const GUIDE: &str = include_str!("../../../../docs/guides/kafka.md");

/// Error code of UnsupportedVersion.
const UNSUPPORTED: i16 = 35;

/// Upper bound of the API keys of Kafka's requests.
const KEY_MAX: i16 = 200;

/// A row of the table.
struct Row {
    key: i16,
    name: String,
    /// Minimum and maximum version.
    of_kafka: (i16, i16),
    here: Option<(i16, i16)>,
}

fn versions(text: &str) -> Result<(i16, i16)> {
    let (lowest, highest) = text.split_once(" to ").unwrap_or((text, text));
    Ok((lowest.parse()?, highest.parse()?))
}

fn rows() -> Result<Vec<Row>> {
    let (_, below) = GUIDE.split_once("\n| key | request | ").context("no table")?;
    let lines = below.lines().skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| -> Result<Row> {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        ensure!(cells.len() == 5, "five cells");
        let here = (cells[3] != "refused").then(|| versions(cells[3])).transpose()?;
        ensure!(here.is_some() || !cells[4].is_empty(), "it does not say why it is refused");
        let name = cells[1].trim_matches('`').to_owned();
        Ok(Row { key: cells[0].parse()?, name, of_kafka: versions(cells[2])?, here })
    };
    lines.map(|line| row(line).with_context(|| format!("in the line {line:?}"))).collect()
}

fn announced(fixture: &Fixture) -> Result<BTreeMap<i16, (i16, i16)>> {
    let request = of::ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("announced"))
        .with_client_software_version(StrBytes::from_static_str("1"));
    let answer = fixture.admin("ApiVersions", request)?;
    let ResponseKind::ApiVersions(answer) = answer else { panic!("{answer:?}") };
    ensure!(answer.error_code == 0, "{answer:?}");
    let keys = answer.api_keys.iter();
    Ok(keys.map(|it| (it.api_key, (it.min_version, it.max_version))).collect())
}

#[test]
fn the_table_of_requests_says_what_is_announced_and_the_others_are_refused() -> Result<()> {
    let fixture = Fixture::start(Vec::new())?;
    let rows = rows()?;
    let mut of_table = BTreeMap::new();
    for row in &rows {
        let Row { key, name, of_kafka, here } = row;
        if let Ok(known) = ApiKey::try_from(*key) {
            ensure!(format!("{known:?}") == *name, "{key} is {known:?} and not {name}");
        }
        let Some(here) = here else { continue };
        ensure!(of_kafka.0 <= here.0 && here.1 <= of_kafka.1, "{name}: {here:?} of {of_kafka:?}");
        let is_first = of_table.insert(*key, *here).is_none();
        ensure!(is_first, "{name} has two lines");
    }
    let mut announced = announced(&fixture)?;
    // Announced for clients that check for it, but not served.
    let produce = announced.get_mut(&(ApiKey::Produce as i16)).context("Produce")?;
    ensure!(produce.0 == 0, "Produce is announced from {}", produce.0);
    produce.0 = 3;
    ensure!(announced == of_table, "announced: {announced:?}, in the table: {of_table:?}");
    for key in (0..KEY_MAX).filter_map(|key| ApiKey::try_from(key).ok()) {
        let has_row = rows.iter().any(|row| row.key == key as i16);
        ensure!(has_row, "the table has no row for {key:?}");
    }
    for row in rows.iter().filter(|row| row.here.is_none()) {
        let mut frame = Vec::new();
        let header = RequestHeader::default()
            .with_request_api_key(row.key)
            .with_request_api_version(row.of_kafka.1);
        header.encode(&mut frame, 2)?;
        let answer = Connection::open(&fixture.broker, ADMIN)?.exchange(&frame)?;
        let code = answer.last_chunk().copied().map(i16::from_be_bytes);
        ensure!(code == Some(UNSUPPORTED), "{}: {answer:?}", row.name);
    }
    // Served requests are served in no other version.
    for (key, (lowest, highest)) in of_table {
        let api_key = ApiKey::try_from(key).map_err(|()| anyhow::anyhow!("no key {key}"))?;
        ensure!(kafka::is_served(api_key, lowest) && kafka::is_served(api_key, highest));
        ensure!(!kafka::is_served(api_key, lowest - 1) && !kafka::is_served(api_key, highest + 1));
        Asked::highest(&format!("{api_key:?}"))?;
    }
    Ok(())
}

/// Goal: announced requests are served in each version, and the adjacent versions are rejected.
/// Method: the requests of the rights' table on existing resources, if a version has all of their
/// fields, otherwise only a header.
#[test]
fn each_version_that_is_announced_is_served_and_no_other() -> Result<()> {
    let fixture = Fixture::start(Vec::new())?;
    fixture.fill()?;
    let mut whole_count = 0;
    for row in crate::table::rows(crate::GUIDE)? {
        let Asked(key, highest) = Asked::highest(row.api())?;
        let (_, lowest, _) = kafka::SERVED.iter().find(|it| it.0 == key).context("it is served")?;
        for version in lowest - 1..=highest + 1 {
            let mut frame = BytesMut::new();
            RequestHeader::default()
                .with_request_api_key(key as i16)
                .with_request_api_version(version)
                .encode(&mut frame, key.request_header_version(version))?;
            let name = asking::harmless(&row.name, "seen");
            let request = asking::request(&row.name, version, &[name]);
            let is_served = (*lowest..=highest).contains(&version);
            // The first versions of some requests cannot ask for all.
            let has_place = row.name != "OffsetFetch: all topics" || version >= 2;
            let is_whole = is_served
                && has_place
                && !crate::OF_LOGINS.contains(&row.api())
                && request.is_some_and(|it| it.encode(&mut frame, version).is_ok());
            let answered = Connection::open(&fixture.broker, ADMIN)?.exchange(&frame);
            let told = |answer: &[u8]| answer.last_chunk().copied().map(i16::from_be_bytes);
            let what = || format!("{}, version {version}: {answered:?}", row.name);
            match &answered {
                Ok(answer) if is_whole => {
                    let head = if key.response_header_version(version) >= 1 { 5 } else { 4 };
                    let mut body = Bytes::copy_from_slice(&answer[head..]);
                    ResponseKind::decode(key, &mut body, version).with_context(what)?;
                    ensure!(body.is_empty(), "{} and more", what());
                    whole_count += 1;
                }
                Ok(answer) if is_served => ensure!(told(answer) != Some(UNSUPPORTED), "{}", what()),
                // An unknown version of ApiVersions is answered with the supported ones.
                Ok(answer) => {
                    let is_told = key == ApiKey::ApiVersions || told(answer) == Some(UNSUPPORTED);
                    ensure!(is_told, "{}", what());
                }
                Err(_) => ensure!(!is_whole, "{}", what()),
            }
        }
    }
    eprintln!("{whole_count} requests were answered in versions that are served");
    ensure!(whole_count > 150, "only {whole_count} requests were whole");
    Ok(())
}

/// Description of a setting that is accepted without effect.
const WITHOUT_EFFECT: &str = "accepted for compatibility with clients; it has no effect";

#[test]
fn the_table_of_settings_says_what_a_topic_has() -> Result<()> {
    let fixture = Fixture::start(Vec::new())?;
    fixture.fill()?;
    let resource = of::describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(StrBytes::from_static_str("seen"))
        .with_configuration_keys(None);
    let request = of::DescribeConfigsRequest::default()
        .with_include_documentation(true)
        .with_resources(vec![resource]);
    let answer = fixture.admin("DescribeConfigs", request)?;
    let ResponseKind::DescribeConfigs(answer) = answer else { panic!("{answer:?}") };
    let shown = answer.results[0].configs.iter().map(|it| {
        let value = it.value.as_deref().unwrap_or_default().to_owned();
        let effect = match it.documentation.as_deref() {
            Some(WITHOUT_EFFECT) => "accepted, without effect",
            effect => effect.unwrap_or_default(),
        };
        (it.name.to_string(), (value, effect.to_owned()))
    });
    let shown: BTreeMap<_, _> = shown.collect();
    let (_, below) = GUIDE.split_once("\n| setting | default | ").context("no table")?;
    let lines = below.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut of_table = BTreeMap::new();
    for line in lines {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        ensure!(cells.len() == 3, "three cells in the line {line:?}");
        let (name, default) = (cells[0].trim_matches('`'), cells[1].trim_matches('`'));
        of_table.insert(name.to_owned(), (default.to_owned(), cells[2].to_owned()));
    }
    ensure!(shown == of_table, "shown: {shown:#?}, in the table: {of_table:#?}");
    Ok(())
}
