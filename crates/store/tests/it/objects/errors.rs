//! One clear error for each thing that is commonly wrong, without anybody's secrets.

use cairn_store::testing::{BucketServer, Mishap, MishapKind};
use cairn_store::{Error, PutMode, open, open_with};

use super::folder_of;

/// What a listing says when the service answers so.
fn answer(status: u16, code: &'static str) -> Error {
    let server = BucketServer::start();
    server.add(Mishap {
        request: vec!["GET", "prefix"],
        kind: MishapKind::Refuse(status, code),
    });
    folder_of(&server, "run").list("").unwrap_err()
}

#[test]
fn every_refusal_says_what_is_wrong_and_what_to_do() {
    let cases = [
        (404, "NoSuchBucket", "bucket `s3://bucket` does not exist"),
        (403, "InvalidAccessKeyId", "does not know the access key"),
        (
            403,
            "SignatureDoesNotMatch",
            "the secret key is not the one",
        ),
        (400, "ExpiredToken", "they have expired"),
        (
            403,
            "RequestTimeTooSkewed",
            "the clock of this machine is wrong",
        ),
        (403, "AccessDenied", "permission denied"),
        (400, "SomethingNew", "As the test asked (SomethingNew)"),
    ];
    for (status, code, words) in cases {
        let error = answer(status, code);
        assert!(error.to_string().contains(words), "{code}: {error}");
        assert!(error.hint().is_some(), "{code}");
    }
}

#[test]
fn a_refusal_without_a_body_is_asked_about() {
    let server = BucketServer::start();
    for method in ["HEAD", "GET"] {
        server.add(Mishap {
            request: vec![method, "run/a"],
            kind: MishapKind::Refuse(403, "InvalidAccessKeyId"),
        });
    }
    let error = folder_of(&server, "run").head("a").unwrap_err();
    assert!(matches!(error, Error::Credentials { .. }), "{error:?}");
}

#[test]
fn a_service_that_cannot_list_uploads_has_none_to_show() {
    let server = BucketServer::start();
    server.add(Mishap {
        request: vec!["GET", "uploads"],
        kind: MishapKind::Refuse(501, "NotImplemented"),
    });
    let uploads = folder_of(&server, "run").uploads("").unwrap();
    assert!(uploads.is_empty());
    assert!(server.take_requests()[0].contains("uploads"));
}

#[test]
fn secrets_are_in_no_message() {
    let mut server = BucketServer::start();
    let options = [
        server.options(),
        vec![("max_retries".to_owned(), "0".to_owned())],
    ]
    .concat();
    let store = open_with(&server.url("run"), &options).unwrap();
    let mut told = vec![format!("{store:?} {}", store.url())];
    for code in ["SignatureDoesNotMatch", "InternalError"] {
        server.add(Mishap {
            request: vec!["PUT"],
            kind: MishapKind::Refuse(500, code),
        });
        told.push(format!(
            "{:?}",
            store.put("a", b"", PutMode::Replace).unwrap_err()
        ));
    }
    server.stop();
    told.push(format!("{:?}", store.uploads("").unwrap_err()));
    told.push(format!("{:?}", store.list("").unwrap_err()));
    for text in told {
        assert!(!text.contains("hush") && !text.contains("X-Amz"), "{text}");
    }
}

#[test]
fn addresses_and_settings_that_cannot_be_are_refused() {
    let message = |url: &str| open(url).unwrap_err().to_string();
    assert!(message("s3://").contains("names no bucket"));
    assert!(message("gs:///folder").contains("names no bucket"));
    let with = |url: &str, name: &str, value: &str| {
        let options = [(name.to_owned(), value.to_owned())];
        open_with(url, &options).unwrap_err().to_string()
    };
    assert!(with("s3://bucket/run", "colour", "blue").contains("colour"));
    assert!(with("s3://bucket/run", "max_retries", "many").contains("is a number"));
    assert!(with("/folder", "region", "here").contains("region"));
}
