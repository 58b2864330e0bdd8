//! Tests of images in an S3 server: the test's own one, or another named by
//! `MEMLANE_TEST_S3_ENDPOINT`.

#[path = "../../image/tests/made/mod.rs"]
mod made;
mod server;
#[path = "../../image/tests/store_cases/mod.rs"]
mod store_cases;

use std::sync::Arc;

use image::{
    ClaimedStore, ImageErrorKind, ImageStore, PackName, StoreKey, Unwatched, find_store_key,
    rehearse,
};
use made::{Contents, Made, claim, newest, options};
use object_images::ObjectImages;
use object_store::aws::AmazonS3Builder;
use object_store::memory::InMemory;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use server::Server;
use storage::AlignedBuffer;
use store_cases::{check_store, sealed, small};

fn client(endpoint: &str) -> Arc<dyn ObjectStore> {
    // Another test may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: std::time::Duration::from_millis(1),
            max_backoff: std::time::Duration::from_millis(2),
            base: 2.0,
        },
        ..RetryConfig::default()
    };
    let builder = AmazonS3Builder::new()
        .with_bucket_name("bucket")
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_access_key_id("key")
        .with_secret_access_key("secret")
        .with_retry(retry);
    Arc::new(builder.build().expect("the settings are whole"))
}

fn store_of(objects: Arc<dyn ObjectStore>, prefix: &str) -> Arc<dyn ImageStore> {
    Arc::new(ObjectImages::new(objects, prefix.into()).expect("threads can be had"))
}

fn served() -> (Server, Arc<dyn ImageStore>) {
    let server = Server::start();
    let store = store_of(client(&format!("http://{}", server.address)), "one/two");
    (server, store)
}

/// Runs a check with a plain and with an encrypted store.
fn plain_and_sealed(check: impl Fn(Server, Arc<dyn ImageStore>)) {
    let (server, store) = served();
    check(server, store);
    let (server, store) = served();
    check(server, sealed(store));
}

#[test]
fn images_are_kept_in_a_server_that_speaks_s3() {
    let (_server, store) = served();
    check_store(&store);
}

#[test]
fn encrypted_images_are_kept_in_a_server_that_speaks_s3() {
    let (_server, store) = served();
    check_store(&sealed(Arc::clone(&store)));
    let key = find_store_key(&*store).expect("it can be read");
    assert!(matches!(key, StoreKey::Wrapped { .. }), "{key:?}");
    let error = ClaimedStore::claim(store, 1).expect_err("there is no key");
    assert_eq!(error.kind, ImageErrorKind::Key);
}

#[test]
fn images_are_kept_in_any_object_store() {
    check_store(&store_of(Arc::new(InMemory::new()), ""));
}

#[test]
fn images_are_kept_in_the_server_that_is_named() {
    // Defaults to this test's server, with an unusual prefix as well.
    let server = Server::start();
    let own = format!("http://{}", server.address);
    let endpoint = std::env::var("MEMLANE_TEST_S3_ENDPOINT").unwrap_or(own);
    let prefix = format!("a b/{}", std::process::id());
    check_store(&store_of(client(&endpoint), &prefix));
}

#[test]
fn objects_lie_below_the_prefix() {
    let (server, store) = served();
    small(1).save(&mut claim(&store));
    let bucket = server.bucket();
    let keys: Vec<&str> = bucket.objects.keys().map(String::as_str).collect();
    assert_eq!(keys[..2], ["one/two/images/0000000001", "one/two/images/0000000002"]);
    assert!(keys[2].starts_with("one/two/packs/") && keys[2].ends_with("-00000000"));
    assert_eq!(keys.len(), 3);
}

#[test]
fn large_packs_are_put_in_parts() {
    let (server, store) = served();
    let rehearsed = rehearse(&*store, 77, &Unwatched).expect("the store is sound");
    assert!(rehearsed.bytes_written >= 64 << 20);
    let bucket = server.bucket();
    assert_eq!(bucket.part_bytes_max, 6 << 20);
    assert_eq!(bucket.uploads_under_way(), 0);
    assert!(bucket.objects.is_empty());
}

#[test]
fn a_pack_that_is_given_up_leaves_no_parts() {
    let (server, store) = served();
    let mut pack = store.begin_pack(PackName { writer: 1, index: 1 }).expect("it is begun");
    pack.append(&AlignedBuffer::zeroed(13 << 20)).expect("there is room");
    assert_eq!(server.bucket().uploads_under_way(), 1);
    drop(pack);
    assert_eq!(server.bucket().uploads_under_way(), 0);
    assert_eq!(store.packs().expect("listed"), []);
}

#[test]
fn a_server_that_fails_for_a_moment_is_asked_again() {
    let (server, store) = served();
    let mut claimed = claim(&store);
    let mut made = small(1);
    server.bucket().failing = 3;
    made.save(&mut claimed);
    server.bucket().failing = 3;
    made.check(&newest(&store).expect("it was saved"));
}

#[test]
fn a_manifest_whose_answer_was_lost_is_known_as_ones_own() {
    plain_and_sealed(|server, store| {
        let mut claimed = claim(&store);
        let mut made = Made::one(8 << 20);
        made.write(0, 0, Contents::Fill(1));
        made.save(&mut claimed);
        // Nothing is new, so the next put is that of the manifest.
        server.bucket().answers_lost = 1;
        made.save(&mut claimed);
        assert_eq!(server.bucket().answers_lost, 0);
        made.save(&mut claimed);
    });
}

#[test]
fn a_manifest_of_which_it_is_not_known_whose_it_is_keeps_its_packs() {
    plain_and_sealed(|server, store| {
        let mut claimed = claim(&store);
        let mut made = small(1);
        made.save(&mut claimed);
        let base = newest(&store).expect("it was saved");
        let packs = store.packs().expect("listed").len();
        made.write(0, 3, Contents::Noise(1 << 40));
        // The manifest exists although the response is a server error, and the retried request is
        // rejected.
        server.bucket().failing_manifests = 1;
        server.bucket().are_reads_failing = true;
        let error = claimed.save(&made, &options(), &Unwatched).expect_err("it is not known");
        assert_eq!(error.kind, ImageErrorKind::Unavailable, "{error:?}");
        server.bucket().are_reads_failing = false;
        assert_eq!(store.packs().expect("listed").len(), packs + 1);
        let image = newest(&store).expect("two are there");
        assert!(image.id() > base.id());
        assert_eq!(image.verify(&Unwatched).expect("it can be read").chunks_damaged, 0);
        made.save(&mut claimed);
        made.check(&newest(&store).expect("three are there"));
    });
}

#[test]
fn a_store_that_overwrites_what_it_was_asked_not_to_is_not_claimed() {
    let (server, store) = served();
    server.bucket().ignores_conditions = true;
    let error = ClaimedStore::claim(Arc::clone(&store), 1).expect_err("nothing fences there");
    assert_eq!(error.kind, ImageErrorKind::Invalid);
    let told = error.source.expect("the reason").to_string();
    assert!(told.contains("If-None-Match"), "{told}");
    server.bucket().ignores_conditions = false;
    ClaimedStore::claim(store, 1).expect("it is claimed");
}

#[test]
fn a_server_that_was_away_is_used_again() {
    let (mut server, store) = served();
    let mut claimed = claim(&store);
    let mut made = small(1);
    made.save(&mut claimed);
    server.stop();
    let error = store.images().expect_err("there is no server");
    assert_eq!(error.kind, ImageErrorKind::Unavailable);
    server.start_again();
    made.check(&newest(&store).expect("it is there"));
    small(2).save(&mut claimed);
}

#[test]
fn two_claims_at_once_do_not_take_each_others_fence_for_their_own() {
    let (server, store) = served();
    let mut first = ClaimedStore::claim(Arc::clone(&store), 1).expect("it is claimed");
    drop(server.bucket().objects.remove("one/two/images/0000000001"));
    // The second writer takes the number of the first one. Only its own bytes count as success.
    ClaimedStore::claim(Arc::clone(&store), 2).expect("it is claimed");
    let fences: Vec<_> = server.bucket().objects.values().cloned().collect();
    assert_eq!(fences.len(), 1);
    let error = store.create_image(1, &[0; 4096]).expect_err("it is taken");
    assert_eq!(error.kind, ImageErrorKind::AlreadyExists);
    small(1).save(&mut first);
}

#[test]
fn a_server_that_denies_what_is_missing_is_asked_for_a_list() {
    let (server, store) = served();
    let number = small(1).save(&mut claim(&store)).id.number();
    server.bucket().are_missing_denied = true;
    assert!(store.has_image(number).expect("it is there"));
    assert!(!store.has_image(number + 1).expect("the list has the others"));
    server.bucket().are_reads_failing = true;
    let error = store.has_image(number).expect_err("the server fails");
    assert_eq!(error.kind, ImageErrorKind::Unavailable);
}

#[test]
fn credentials_that_are_refused_are_named_as_such() {
    let server = Server::start();
    let endpoint = format!("http://{}", server.address);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = AmazonS3Builder::new()
        .with_bucket_name("bucket")
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_skip_signature(true);
    let objects = builder.build().expect("the settings are whole");
    let store = store_of(Arc::new(objects), "");
    let error = store.images().expect_err("requests without a signature are refused");
    assert_eq!(error.kind, ImageErrorKind::Denied);
}
