//! Edits in another encoding than JSON: the API server decodes them before it asks the guard, so they are refused as
//! the same edits in JSON are.

use serde_json::{Value, json};

use crate::support::{RELEASE, Scene, charts};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const CBOR: &str = "application/cbor";

/// A field of a protobuf message that has a length: a text, bytes or another message.
fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 0x7f {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(content);
    bytes
}

/// The entries of a map of texts.
fn entries(number: u8, map: &Value) -> Vec<u8> {
    let entry = |(key, value): (&String, &Value)| {
        field(number, [field(1, key), field(2, value.as_str().unwrap())].concat())
    };
    map.as_object().unwrap().iter().flat_map(entry).collect()
}

/// The envelope that Kubernetes puts around a message.
fn envelope(object: &Value, message: &[u8]) -> Vec<u8> {
    let text = |name: &str| object[name].as_str().unwrap();
    let kind = [field(1, text("apiVersion")), field(2, text("kind"))].concat();
    [b"k8s\0".to_vec(), field(1, kind), field(2, message)].concat()
}

/// A ConfigMap, or the options of a deletion.
fn protobuf(object: &Value) -> Vec<u8> {
    if object["kind"] == "DeleteOptions" {
        return envelope(object, &field(4, object["propagationPolicy"].as_str().unwrap()));
    }
    let text = |name: &str| object["metadata"][name].as_str().unwrap();
    let metadata = [
        field(1, text("name")),
        field(3, text("namespace")),
        entries(11, &object["metadata"]["labels"]),
        entries(12, &object["metadata"]["annotations"]),
    ];
    envelope(object, &[field(1, metadata.concat()), entries(2, &object["data"])].concat())
}

/// Texts and maps of them, with the tag by which Kubernetes knows CBOR.
fn cbor(object: &Value) -> Vec<u8> {
    [vec![0xd9, 0xd9, 0xf7], item(object)].concat()
}

fn item(value: &Value) -> Vec<u8> {
    let head = |major: u8, length: usize| match u8::try_from(length).unwrap() {
        short @ ..24 => vec![major << 5 | short],
        long => vec![major << 5 | 24, long],
    };
    let text = |text: &str| [head(3, text.len()), text.as_bytes().to_vec()].concat();
    match value {
        Value::String(value) => text(value),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| [text(key), item(value)].concat());
            [head(5, map.len())].into_iter().chain(entries).collect::<Vec<_>>().concat()
        }
        other => panic!("{other} is neither a text nor a map"),
    }
}

/// A guarded ConfigMap, with what an edit has to keep of it.
async fn guarded(prefix: &str) -> (Scene, String, Value) {
    let shop = Scene::shared().install(prefix, charts::SETTINGS).await;
    let path = shop.config_map("settings");
    shop.wait_until_guarded(&path).await;
    let mut object = shop.get(&path).await;
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|field, _| ["name", "namespace", "labels", "annotations"].contains(&field.as_str()));
    (shop, path, object)
}

fn edited(object: &Value) -> Value {
    let mut edited = object.clone();
    edited["data"]["level"] = json!("mine");
    edited
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_in_protobuf_are_refused_as_in_json() {
    let (shop, path, object) = guarded("encoded-protobuf").await;
    let alice = &shop.alice;
    // An edit of what nobody declares shows that the API server reads it.
    let mut labelled = object.clone();
    labelled["metadata"]["labels"]["edited-by"] = json!("alice");
    let stored = alice.send_bytes("PUT", &path, PROTOBUF, protobuf(&labelled)).await.done().unwrap();
    assert_eq!(stored["metadata"]["labels"]["edited-by"], "alice");
    assert_eq!(stored["data"], object["data"]);

    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    let all = shop.core("configmaps");
    for (method, path, body) in
        [("PUT", &path, edited(&labelled)), ("POST", &all, edited(&labelled)), ("DELETE", &path, options)]
    {
        let json = alice.send_bytes(method, path, "application/json", body.to_string().into_bytes()).await;
        let protobuf = alice.send_bytes(method, path, PROTOBUF, protobuf(&body)).await;
        protobuf.refused(RELEASE).unwrap();
        assert_eq!((protobuf.code, &protobuf.body["message"]), (json.code, &json.body["message"]));
    }
    assert_eq!(shop.get(&path).await["data"], object["data"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_in_cbor_are_refused_as_in_json_or_not_read_at_all() {
    let (shop, path, object) = guarded("encoded-cbor").await;
    let put = async |object: &Value| shop.alice.send_bytes("PUT", &path, CBOR, cbor(object)).await;
    let unchanged = put(&object).await;
    let cbor = put(&edited(&object)).await;
    match unchanged.code {
        200 => {
            let json = shop.alice.put(&path, &edited(&object)).await;
            cbor.refused(RELEASE).unwrap();
            assert_eq!((cbor.code, &cbor.body["message"]), (json.code, &json.body["message"]));
        }
        // An API server without the feature knows no such type.
        _ => assert_eq!((unchanged.code, cbor.code), (415, 415), "{unchanged} {cbor}"),
    }
    assert_eq!(shop.get(&path).await["data"], object["data"]);
}
