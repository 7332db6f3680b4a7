use super::*;

#[test]
fn line_for_people_leaves_out_what_is_not_known() {
    let client = || Build { version: "1.2.3", commit: None, compiler: None };
    let guard = |version: Option<&str>, commit: Option<&str>| {
        let [version, commit] = [version, commit].map(|it| it.map(str::to_owned));
        Some(GuardBuild { namespace: "moor".to_owned(), version, commit })
    };
    let check = |client: Build, guard: Option<GuardBuild>, expected: &str| {
        assert_eq!(text(&VersionReport { client, guard }), expected);
    };
    check(client(), None, "kubemoor 1.2.3\n");
    let built = Build { commit: Some("abc"), compiler: Some("rustc 1.95.0"), ..client() };
    check(
        built,
        guard(Some("1.2.2"), Some("def")),
        "kubemoor 1.2.3 (abc, rustc 1.95.0)\nguard    1.2.2 (def) in namespace moor\n",
    );
    check(client(), guard(None, None), "kubemoor 1.2.3\nguard    of an unknown version in namespace moor\n");
}
