//! Access control lists: authorization, changes by requests, and the file.
#![forbid(unsafe_code)]

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use access::{
    AccessErrorKind, Acl, AclFile, AclOptions, Acls, CLUSTER_NAME, HostRule, Operation, Pattern,
    PatternKind, Permission, Principal, Resource, ResourceKind, WithoutFile,
};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::{
    CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest, DescribeAclsResponse,
};
use kafka_protocol::protocol::StrBytes;
use model::{Random, for_each_seed};
use tempfile::TempDir;

const HERE: &str = "192.0.2.1";

struct Setup {
    directory: TempDir,
    file: AclFile,
}

fn principal(name: &str) -> Principal {
    Principal::user(name).expect("a name")
}

fn options() -> AclOptions {
    let super_users = vec![principal("root")];
    AclOptions { super_users, without_file: WithoutFile::AllowEveryone }
}

fn host(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl Setup {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = AclFile::open(directory.path().join("acls.toml"), options());
        Self { directory, file: file.expect("there is none yet") }
    }

    fn with(acls: &[Acl]) -> Self {
        let mut setup = Self::new();
        setup.file.add(acls.iter().cloned()).expect("they are valid");
        setup
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("acls.toml")
    }

    fn count(&self) -> usize {
        self.file.acls().entries().count()
    }

    fn allows(&self, name: &str, operation: Operation, topic: &str) -> bool {
        let topic = Resource::topic(topic);
        let decision = self.file.acls().authorize(&principal(name), host(HERE), operation, topic);
        decision.is_allowed()
    }
}

/// Parses `allow alice Read on Topic orders`. `orders*` is a prefix, and `alice@ADDRESS` sets the
/// host.
fn acl(text: &str) -> Acl {
    let words: Vec<_> = text.split(' ').collect();
    let [permission, name, operation, "on", resource, pattern] = words[..] else {
        panic!("{text}: six words")
    };
    let (name, from) = name.split_once('@').unwrap_or((name, "*"));
    let operations = Operation::ALL.into_iter();
    let resources = ResourceKind::ALL.into_iter();
    let prefix = pattern.strip_suffix('*').filter(|prefix| !prefix.is_empty());
    Acl {
        pattern: Pattern {
            resource: resources.clone().find(|it| format!("{it:?}") == resource).expect("a kind"),
            name: prefix.unwrap_or(pattern).to_owned(),
            pattern: if prefix.is_some() { PatternKind::Prefixed } else { PatternKind::Literal },
        },
        principal: principal(name),
        host: from.parse().expect("a host"),
        operation: operations.clone().find(|it| format!("{it:?}") == operation).expect("one"),
        permission: if permission == "allow" { Permission::Allow } else { Permission::Deny },
    }
}

#[track_caller]
fn check(lines: &[&str], operation: Operation, topic: &str, expected: bool) {
    let acls: Vec<_> = lines.iter().map(|line| acl(line)).collect();
    let is_allowed = Setup::with(&acls).allows("alice", operation, topic);
    assert_eq!(is_allowed, expected, "{lines:?}: {operation:?} {topic}");
}

#[test]
fn patterns_cover_names_as_kafkas_do() {
    use Operation::Read;
    check(&["allow alice Read on Topic orders"], Read, "orders", true);
    check(&["allow alice Read on Topic orders"], Read, "orders2", false);
    check(&["allow alice Read on Topic orders*"], Read, "orders2", true);
    check(&["allow alice Read on Topic orders*"], Read, "order", false);
    check(&["allow alice Read on Topic *"], Read, "orders", true);
    check(&["allow alice Read on Group orders"], Read, "orders", false);
    check(&["allow bob Read on Topic orders"], Read, "orders", false);
    check(&["allow * Read on Topic orders"], Read, "orders", true);
    check(&["allow alice Read on Topic \u{fc}*"], Read, "\u{fc}x", true);
    check(&["allow alice Read on Topic ab*"], Read, "a\u{fc}b", false);
}

#[test]
fn hosts_are_compared_in_their_plain_form() {
    use Operation::Read;
    check(&["allow alice@192.0.2.1 Read on Topic orders"], Read, "orders", true);
    check(&["allow alice@192.0.2.2 Read on Topic orders"], Read, "orders", false);
    check(&["allow alice@::ffff:192.0.2.1 Read on Topic orders"], Read, "orders", true);
    let setup = Setup::with(&[acl("allow alice@192.0.2.1 Read on Topic orders")]);
    let mapped = host("::ffff:192.0.2.1");
    let orders = Resource::topic("orders");
    let decision = setup.file.acls().authorize(&principal("alice"), mapped, Read, orders);
    assert!(decision.is_allowed());
}

#[test]
fn a_denial_wins() {
    use Operation::{Describe, Read, Write};
    let allow = "allow alice All on Topic *";
    check(&[allow, "deny alice Read on Topic orders"], Read, "orders", false);
    check(&[allow, "deny * Read on Topic or*"], Read, "orders", false);
    check(&[allow, "deny alice All on Topic orders"], Write, "orders", false);
    check(&[allow, "deny alice@192.0.2.1 Read on Topic *"], Read, "orders", false);
    check(&[allow, "deny alice@192.0.2.2 Read on Topic *"], Read, "orders", true);
    check(&[allow, "deny bob Read on Topic orders"], Read, "orders", true);
    check(&["allow alice Read on Topic a", "deny alice Read on Topic a"], Describe, "a", true);
    check(&["allow alice Read on Topic a", "deny alice Describe on Topic a"], Describe, "a", false);
}

#[test]
fn operations_imply_others_as_in_kafka() {
    use Operation::*;
    let implied = |given: Operation, asked: Operation| match asked {
        _ if given == All || given == asked => true,
        Describe => matches!(given, Read | Write | Delete | Alter),
        DescribeConfigs => given == AlterConfigs,
        _ => false,
    };
    for given in Operation::ALL {
        let line = format!("allow alice {given:?} on Topic orders");
        for asked in Operation::ALL {
            check(&[&line], asked, "orders", implied(given, asked));
        }
    }
}

#[test]
fn super_users_may_do_everything_and_others_what_a_line_allows() {
    let setup = Setup::with(&[acl("deny * All on Topic *")]);
    assert!(setup.allows("root", Operation::Write, "orders"));
    assert!(!setup.allows("alice", Operation::Write, "orders"));
}

#[test]
fn without_a_file_the_configuration_decides() {
    let mut setup = Setup::new();
    assert!(setup.allows("alice", Operation::Write, "orders"));
    let closed = AclOptions { without_file: WithoutFile::DenyEveryone, ..options() };
    let file = AclFile::open(setup.path(), closed).expect("there is none");
    let write = |name| {
        let cluster = Resource::cluster();
        file.acls().authorize(&principal(name), host(HERE), Operation::Alter, cluster).is_allowed()
    };
    assert!(!write("alice") && write("root"));
    setup.file.add([acl("allow bob Write on Topic orders")]).expect("it is valid");
    assert!(!setup.allows("alice", Operation::Write, "orders"));
    assert!(setup.allows("bob", Operation::Write, "orders"));
}

/// Reference implementation of the rules in Kafka's documentation.
mod naive {
    use super::*;

    fn applies(acl: &Acl, who: &Principal, from: IpAddr, kind: ResourceKind) -> bool {
        let is_principal = acl.principal == *who || acl.principal.name() == "*";
        let is_host = acl.host == HostRule::Any || acl.host == HostRule::Address(from);
        is_principal && is_host && acl.pattern.resource == kind
    }

    fn covers(pattern: &Pattern, name: &str) -> bool {
        match pattern.pattern {
            PatternKind::Literal => pattern.name == "*" || pattern.name == name,
            PatternKind::Prefixed => name.starts_with(&pattern.name),
        }
    }

    pub(super) fn authorize(
        acls: &[Acl],
        who: &Principal,
        from: IpAddr,
        operation: Operation,
        resource: Resource<'_>,
    ) -> bool {
        let matching: Vec<&Acl> = acls
            .iter()
            .filter(|it| {
                applies(it, who, from, resource.kind) && covers(&it.pattern, resource.name)
            })
            .collect();
        let is_named = |acl: &Acl| acl.operation == operation || acl.operation == Operation::All;
        let implies = |acl: &Acl| match operation {
            Operation::Describe => matches!(
                acl.operation,
                Operation::Read | Operation::Write | Operation::Delete | Operation::Alter
            ),
            Operation::DescribeConfigs => acl.operation == Operation::AlterConfigs,
            _ => false,
        };
        let is_denied =
            matching.iter().any(|acl| acl.permission == Permission::Deny && is_named(acl));
        let is_allowed = matching
            .iter()
            .any(|acl| acl.permission == Permission::Allow && (is_named(acl) || implies(acl)));
        is_allowed && !is_denied
    }
}

const NAMES: [&str; 3] = ["alice", "bob", "*"];
const HOSTS: [&str; 3] = ["*", "192.0.2.1", "2001:db8::1"];
const LETTERS: [char; 3] = ['a', 'b', '*'];

fn random_name(random: &mut Random) -> String {
    (0..=random.index(3)).map(|_| random.pick(&LETTERS)).collect()
}

fn random_acl(random: &mut Random) -> Acl {
    let resource = random.pick(&ResourceKind::ALL);
    let is_cluster = resource == ResourceKind::Cluster;
    let name = if is_cluster { CLUSTER_NAME.to_owned() } else { random_name(random) };
    let pattern = if is_cluster { PatternKind::Literal } else { random.pick(&PatternKind::ALL) };
    Acl {
        pattern: Pattern { resource, name, pattern },
        principal: principal(random.pick(&NAMES)),
        host: random.pick(&HOSTS).parse().expect("a host"),
        operation: random.pick(&Operation::ALL),
        permission: if random.one_in(4) { Permission::Deny } else { Permission::Allow },
    }
}

/// All names of up to four letters, some with a last letter that occurs in no entry.
fn all_names() -> Vec<String> {
    let mut names = vec![String::new()];
    let mut start = 0;
    for _ in 0..4 {
        let end = names.len();
        for index in start..end {
            for letter in LETTERS.into_iter().chain(['z']) {
                names.push(format!("{}{letter}", names[index]));
            }
        }
        start = end;
    }
    names.remove(0);
    names
}

/// Goal: authorization by the index equals that by a scan of all entries.
/// Method: random entries of few letters, so that patterns overlap, and random requests.
#[test]
fn decisions_agree_with_the_lines() {
    let names = all_names();
    for_each_seed("cargo test -p access --test acls decisions_agree", 40, |seed| {
        let mut random = Random::new(seed);
        let acls: Vec<_> = (0..random.index(40)).map(|_| random_acl(&mut random)).collect();
        let setup = Setup::with(&acls);
        let compiled: &Acls = setup.file.acls();
        if acls.is_empty() {
            return;
        }
        for _ in 0..2000 {
            let who = principal(random.pick(&["alice", "bob", "carol"]));
            let from = host(random.pick(&["192.0.2.1", "2001:db8::1", "192.0.2.9"]));
            let operation = random.pick(&Operation::ALL);
            let kind = random.pick(&ResourceKind::ALL);
            let name = names[random.index(names.len())].as_str();
            let name = if kind == ResourceKind::Cluster { CLUSTER_NAME } else { name };
            let resource = Resource { kind, name };
            let expected = naive::authorize(&acls, &who, from, operation, resource);
            let got = compiled.authorize(&who, from, operation, resource).is_allowed();
            assert_eq!(got, expected, "{who} {operation:?} {resource:?}");
        }
        for _ in 0..10 {
            let kind = random.pick(&[ResourceKind::Topic, ResourceKind::Group]);
            let who = principal(random.pick(&["alice", "bob", "carol"]));
            let from = host(random.pick(&["192.0.2.1", "2001:db8::1", "192.0.2.9"]));
            let operation = random.pick(&Operation::ALL);
            let expected = names.iter().any(|name| {
                let resource = Resource { kind, name };
                naive::authorize(&acls, &who, from, operation, resource)
            });
            let got = compiled.authorize_any(&who, from, operation, kind).is_allowed();
            assert_eq!(got, expected, "{who} {operation:?} of any {kind:?}");
        }
    });
}

#[test]
fn lines_come_back_from_the_file_and_one_that_is_bad_changes_nothing() {
    let acls = [
        acl("allow alice Read on Topic or*"),
        acl("deny *@192.0.2.2 All on Group *"),
        acl("allow bob IdempotentWrite on Cluster kafka-cluster"),
        acl("allow CN=x,O=\"y\" Write on TransactionalId t"),
    ];
    let mut setup = Setup::with(&acls);
    let again = AclFile::open(setup.path(), options()).expect("it is read");
    let mut expected: Vec<_> = acls.iter().collect();
    expected.sort();
    assert!(again.acls().entries().eq(expected));

    let good = fs::read_to_string(setup.path()).expect("a file");
    // Errors about a word contain its line. Errors about a whole entry describe it in words.
    let cases = [
        ("\"Read\"", "\"Raed\"", None),
        ("\"User:alice\"", "\"alice\"", Some("the principal \"alice\"")),
        ("\"192.0.2.2\"", "\"192.0.2\"", None),
        ("\"kafka-cluster\"", "\"cluster\"", Some("the only name of the cluster")),
        ("\"Prefixed\"", "\"Match\"", None),
        ("version = 1", "colour = 1\nversion = 1", None),
    ];
    for (from, to, words) in cases {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        fs::write(setup.path(), &text).expect("it is ours");
        let error = setup.file.reload().expect_err(to);
        assert_eq!(error.kind, AccessErrorKind::Contents);
        let at = text.find(to).expect("it was put there");
        let line = format!("line {}:", text[..=at].lines().count());
        let expected = words.unwrap_or(&line);
        assert!(error.to_string().contains(expected), "{error}");
        assert!(setup.allows("alice", Operation::Read, "orders"));
    }
    fs::remove_file(setup.path()).expect("it is ours");
    assert_eq!(setup.file.reload().expect_err("it is gone").kind, AccessErrorKind::File);
    assert!(!setup.allows("carol", Operation::Read, "orders"));
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn creation(acl: &Acl) -> AclCreation {
    AclCreation::default()
        .with_resource_type(acl.pattern.resource.code())
        .with_resource_name(text(&acl.pattern.name))
        .with_resource_pattern_type(acl.pattern.pattern.code())
        .with_principal(text(acl.principal.as_str()))
        .with_host(text(&acl.host.to_string()))
        .with_operation(acl.operation.code())
        .with_permission_type(acl.permission.code())
}

#[test]
fn valid_lines_of_a_request_are_added_and_others_are_told_why_not() {
    let mut setup = Setup::new();
    let good = creation(&acl("allow alice Read on Topic orders"));
    let creations = vec![
        good.clone(),
        good.clone().with_resource_type(6),
        good.clone().with_resource_type(1),
        good.clone().with_resource_pattern_type(2),
        good.clone().with_operation(13),
        good.clone().with_permission_type(1),
        good.clone().with_principal(text("Group:x")),
        good.clone().with_host(text("localhost")),
        good.clone().with_resource_name(text("")),
        good.clone().with_resource_type(ResourceKind::Cluster.code()),
        good.clone().with_resource_name(text(&"x".repeat(1025))),
        good.clone().with_resource_name(text("payments")),
    ];
    let last = creations.len() - 1;
    let request = CreateAclsRequest::default().with_creations(creations);
    let results = setup.file.create(&request).results;
    for (index, result) in results.iter().enumerate() {
        let is_good = index == 0 || index == last;
        let expected = if is_good { 0 } else { ResponseError::InvalidRequest.code() };
        assert_eq!(result.error_code, expected, "creation {index}");
        assert_eq!(result.error_message.is_none(), is_good);
    }
    assert_eq!(results.len(), last + 1);
    assert_eq!(setup.count(), 2);
    let again = AclFile::open(setup.path(), options()).expect("it is read");
    assert!(again.acls().entries().eq(setup.file.acls().entries()));
}

#[test]
fn lines_that_cannot_be_stored_are_not_in_force() {
    let mut setup = Setup::with(&[acl("allow alice Read on Topic orders")]);
    fs::write(setup.path(), "version = 1\n").expect("an edit by hand");
    let creations = vec![creation(&acl("allow bob Read on Topic orders"))];
    let request = CreateAclsRequest::default().with_creations(creations);
    let result = &setup.file.create(&request).results[0];
    assert_eq!(result.error_code, ResponseError::UnknownServerError.code());
    assert!(!setup.allows("bob", Operation::Read, "orders"));
    let deletion = DeleteAclsRequest::default().with_filters(vec![any_filter()]);
    let result = &setup.file.delete(&deletion).filter_results[0];
    assert_eq!(result.error_code, ResponseError::UnknownServerError.code());
    assert!(setup.allows("alice", Operation::Read, "orders"));
}

/// A filter that matches every entry.
fn any_filter() -> DeleteAclsFilter {
    DeleteAclsFilter::default()
        .with_resource_type_filter(1)
        .with_resource_name_filter(None)
        .with_pattern_type_filter(1)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_operation(1)
        .with_permission_type(1)
}

fn describe(file: &AclFile, filter: &DeleteAclsFilter) -> DescribeAclsResponse {
    file.describe(
        &DescribeAclsRequest::default()
            .with_resource_type_filter(filter.resource_type_filter)
            .with_resource_name_filter(filter.resource_name_filter.clone())
            .with_pattern_type_filter(filter.pattern_type_filter)
            .with_principal_filter(filter.principal_filter.clone())
            .with_host_filter(filter.host_filter.clone())
            .with_operation(filter.operation)
            .with_permission_type(filter.permission_type),
    )
}

const FILTERED: [&str; 5] = [
    "allow alice Read on Topic orders",
    "allow alice Write on Topic orders",
    "deny bob@192.0.2.2 Read on Topic or*",
    "allow bob All on Topic *",
    "allow alice Read on Group orders",
];

/// Checks that a filter describes, and then deletes, the entries with these indexes.
#[track_caller]
fn check_filter(filter: DeleteAclsFilter, expected: &[usize]) {
    let acls = FILTERED.map(acl);
    let mut setup = Setup::with(&acls);
    let described = describe(&setup.file, &filter);
    assert_eq!((described.error_code, described.error_message), (0, None));
    let count: usize = described.resources.iter().map(|it| it.acls.len()).sum();
    assert_eq!(count, expected.len());
    let request = DeleteAclsRequest::default().with_filters(vec![filter]);
    let result = &setup.file.delete(&request).filter_results[0];
    assert_eq!((result.error_code, result.matching_acls.len()), (0, expected.len()));
    assert!(result.error_message.is_none());
    assert!(result.matching_acls.iter().all(|it| it.error_message.is_none()));
    let rest = acls.iter().enumerate().filter(|(index, _)| !expected.contains(index));
    let mut rest: Vec<_> = rest.map(|(_, acl)| acl).collect();
    rest.sort();
    assert!(setup.file.acls().entries().eq(rest));
}

#[test]
fn filters_describe_and_delete_what_kafkas_do() {
    let any = any_filter;
    let orders = || any().with_resource_name_filter(Some(text("orders")));
    check_filter(any(), &[0, 1, 2, 3, 4]);
    check_filter(any().with_resource_type_filter(ResourceKind::Group.code()), &[4]);
    check_filter(any().with_resource_type_filter(7), &[]);
    check_filter(orders(), &[0, 1, 4]);
    check_filter(orders().with_pattern_type_filter(2), &[0, 1, 2, 3, 4]);
    check_filter(orders().with_pattern_type_filter(3), &[0, 1, 4]);
    check_filter(orders().with_pattern_type_filter(4), &[]);
    check_filter(any().with_pattern_type_filter(4), &[2]);
    check_filter(any().with_resource_name_filter(Some(text("*"))), &[3]);
    check_filter(any().with_principal_filter(Some(text("User:bob"))), &[2, 3]);
    check_filter(any().with_host_filter(Some(text("*"))), &[0, 1, 3, 4]);
    check_filter(any().with_operation(Operation::Read.code()), &[0, 2, 4]);
    check_filter(any().with_permission_type(Permission::Deny.code()), &[2]);
}

#[test]
fn descriptions_are_sorted_by_resource() {
    let setup = Setup::with(&FILTERED.map(acl));
    let resources = describe(&setup.file, &any_filter()).resources;
    let names: Vec<_> = resources
        .iter()
        .map(|it| (it.resource_type, it.resource_name.as_str(), it.pattern_type, it.acls.len()))
        .collect();
    assert_eq!(names, [(2, "*", 3, 1), (2, "or", 4, 1), (2, "orders", 3, 2), (3, "orders", 3, 1)]);
    let denial = &resources[1].acls[0];
    assert_eq!((denial.principal.as_str(), denial.host.as_str()), ("User:bob", "192.0.2.2"));
    assert_eq!((denial.operation, denial.permission_type), (3, 2));
}

#[test]
fn numbers_that_kafka_does_not_define_are_errors() {
    let mut setup = Setup::with(&FILTERED.map(acl));
    let wrong = [
        any_filter().with_resource_type_filter(0),
        any_filter().with_resource_type_filter(8),
        any_filter().with_pattern_type_filter(0),
        any_filter().with_operation(16),
        any_filter().with_permission_type(-1),
    ];
    for filter in &wrong {
        let code = describe(&setup.file, filter).error_code;
        assert_eq!(code, ResponseError::InvalidRequest.code());
    }
    let count = wrong.len();
    let request = DeleteAclsRequest::default().with_filters(wrong.to_vec());
    let results = setup.file.delete(&request).filter_results;
    assert!(results.iter().all(|it| it.error_code == ResponseError::InvalidRequest.code()));
    assert_eq!((results.len(), setup.count()), (count, FILTERED.len()));
}

#[test]
fn a_request_with_too_many_filters_deletes_nothing() {
    let mut setup = Setup::with(&FILTERED.map(acl));
    let request = DeleteAclsRequest::default().with_filters(vec![any_filter(); 1001]);
    let results = setup.file.delete(&request).filter_results;
    assert!(results.iter().all(|it| it.error_code == ResponseError::InvalidRequest.code()));
    assert_eq!(setup.count(), FILTERED.len());
}

#[test]
fn a_line_is_deleted_for_the_first_filter_that_asks_for_it() {
    let mut setup = Setup::with(&FILTERED.map(acl));
    let groups = any_filter().with_resource_type_filter(ResourceKind::Group.code());
    let filters = vec![groups, any_filter(), any_filter()];
    let request = DeleteAclsRequest::default().with_filters(filters);
    let results = setup.file.delete(&request).filter_results;
    let counts: Vec<_> = results.iter().map(|it| it.matching_acls.len()).collect();
    assert_eq!(counts, [1, 4, 0]);
    assert_eq!(setup.count(), 0);
    assert!(!setup.allows("alice", Operation::Read, "orders"), "an empty file allows nothing");
}

#[test]
fn the_example_of_the_guide_means_what_the_guide_says() {
    let guide = include_str!("../../../docs/guides/access.md");
    let lists = guide.split_once("## Access lists").expect("a section").1;
    let example = lists.split_once("```toml\n").expect("an example").1;
    let mut setup = Setup::with(&[acl("allow bob Read on Topic other")]);
    let text = example.split_once("```").expect("its end").0;
    fs::write(setup.path(), text).expect("it is ours");
    setup.file.reload().expect("it can be used");
    assert!(setup.allows("alice", Operation::Read, "orders-1"));
    assert!(setup.allows("alice", Operation::Describe, "orders-1"));
    assert!(!setup.allows("alice", Operation::Read, "other"));
    let denied = host("192.0.2.7");
    let topic = Resource::topic("orders-1");
    let decision = setup.file.acls().authorize(&principal("alice"), denied, Operation::Read, topic);
    assert!(!decision.is_allowed());
}
