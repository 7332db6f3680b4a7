use super::super::*;

#[track_caller]
fn check(pointer: &str, plain: &str) {
    let path: Path = pointer.parse().unwrap();
    assert_eq!(path.plain().to_string(), plain);
    assert_eq!(Path::from_plain(plain), Some(path), "{plain}");
}

#[test]
fn paths_are_written_as_people_write_them_and_read_back() {
    check("/spec/replicas", "spec.replicas");
    check("/spec/template/spec/containers/[name=app]/image", "spec.template.spec.containers[app].image");
    check("/spec/ports/[port=80,protocol=TCP]/targetPort", "spec.ports[port=80,protocol=TCP].targetPort");
    check("/spec/env/[name=\"80\"]/value", "spec.env[name=\"80\"].value");
    check("/spec/env/[name=\"a b\"]", "spec.env[name=\"a b\"]");
    check("/metadata/annotations/kubemoor.dev~1allow", "metadata.annotations[\"kubemoor.dev/allow\"]");
    check("/metadata/finalizers/[=foregroundDeletion]", "metadata.finalizers[=foregroundDeletion]");
    check("/data/nginx.conf", "data[\"nginx.conf\"]");
    check("/data/0", "data[\"0\"]");
    check("/data/a\"]b", "data[\"a\\\"]b\"]");
}

#[test]
fn place_in_a_list_reads_as_a_pointer_has_it() {
    let path: Path = "/spec/rules/0/host".parse().unwrap();
    assert_eq!(Path::from_plain("spec.rules[0].host"), Some(path));
}

#[test]
fn other_text_is_no_plain_path() {
    for text in ["", ".", "spec.", "spec..a", "/spec", "a b", "spec[", "spec[]", "spec[a", "spec[a]b"] {
        assert_eq!(Path::from_plain(text), None, "{text}");
    }
}
