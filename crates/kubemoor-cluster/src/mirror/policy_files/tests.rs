use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::mirror::policies::PolicyFate;
use kubemoor_declare::model::{DriftMode, EditsMode, ReleaseId};
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::{Labels, PolicyResolver};

struct PolicyFolder {
    dir: TempDir,
    folder: PolicyDirectory,
    in_force: Arc<ActivePolicies>,
}

fn policy(name: &str, edits: &str) -> String {
    format!(
        "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\nmetadata: {{name: {name}}}\nspec: {{edits: {edits}}}\n"
    )
}

fn resolver() -> Arc<ActivePolicies> {
    let defaults = Policy::new(EditsMode::Warn, DriftMode::Report, Duration::from_secs(3600));
    ActivePolicies::new(Arc::new(PolicyResolver::new(defaults)), Labels::new())
}

impl PolicyFolder {
    fn with_files(files: &[(&str, &str)]) -> Self {
        let (dir, in_force) = (TempDir::new().unwrap(), resolver());
        files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
        let folder = PolicyDirectory::open(dir.path(), &in_force).unwrap();
        Self { dir, folder, in_force }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn reread(&mut self) {
        let stamps = self.folder.look().unwrap();
        self.folder.read(stamps, &self.in_force);
    }

    fn names(&self) -> Vec<String> {
        let policies = self.in_force.resolver().policies();
        policies.ranked().iter().map(|policy| policy.name.clone()).collect()
    }

    fn edits(&self) -> EditsMode {
        let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
        self.in_force.resolver().policy(&release).edits
    }
}

#[test]
fn all_yaml_files_contribute_policies_and_other_files_are_ignored() {
    let both = policy("b", "Deny") + "---\n" + &policy("c", "Deny");
    let scene = PolicyFolder::with_files(&[
        ("1.yaml", &policy("a", "Deny")),
        ("2.yml", &both),
        ("notes.txt", "no policy"),
        (".hidden.yaml", "no: policy"),
    ]);
    assert_eq!(scene.names(), ["a", "b", "c"]);
    assert_eq!(scene.edits(), EditsMode::Deny);
}

#[test]
fn changed_file_updates_its_policies_and_removes_missing_ones() {
    let mut scene =
        PolicyFolder::with_files(&[("1.yaml", &(policy("a", "Deny") + "---\n" + &policy("b", "Deny")))]);
    scene.write("1.yaml", &policy("a", "Record"));
    scene.reread();
    assert_eq!((scene.names(), scene.edits()), (vec!["a".to_owned()], EditsMode::Record));
}

#[test]
fn previous_policies_stay_when_their_file_becomes_invalid() {
    for flawed in [
        policy("a", "Forbid"),
        "{".to_owned(),
        "kind: ConfigMap\n".to_owned(),
        policy("a", "Allow") + "---\n" + &policy("", "Allow"),
    ] {
        let mut scene =
            PolicyFolder::with_files(&[("1.yaml", &(policy("a", "Deny") + "---\n" + &policy("b", "Deny")))]);
        scene.write("1.yaml", &flawed);
        scene.reread();
        assert_eq!(scene.names(), ["a", "b"], "{flawed}");
    }
}

#[test]
fn invalid_document_does_not_block_other_documents_of_its_file() {
    let mut scene =
        PolicyFolder::with_files(&[("1.yaml", &(policy("a", "Deny") + "---\n" + &policy("b", "Deny")))]);
    scene.write("1.yaml", &(policy("a", "Record") + "---\n" + &policy("b", "Forbid")));
    scene.reread();
    assert_eq!((scene.names().len(), scene.edits()), (2, EditsMode::Record));
}

#[test]
fn initially_invalid_policy_is_skipped_without_blocking_other_policies() {
    let scene =
        PolicyFolder::with_files(&[("1.yaml", &policy("a", "Forbid")), ("2.yaml", &policy("b", "Deny"))]);
    assert_eq!((scene.names(), scene.edits()), (vec!["b".to_owned()], EditsMode::Deny));
}

#[test]
fn policies_of_deleted_file_stay_until_another_file_replaces_them() {
    let mut scene = PolicyFolder::with_files(&[("1.yaml", &policy("a", "Deny"))]);
    fs::remove_file(scene.dir.path().join("1.yaml")).unwrap();
    scene.reread();
    assert_eq!((scene.names(), scene.edits()), (vec!["a".to_owned()], EditsMode::Deny));
    scene.write("renamed.yaml", &policy("a", "Record"));
    scene.reread();
    assert_eq!((scene.names(), scene.edits()), (vec!["a".to_owned()], EditsMode::Record));
}

#[test]
fn first_file_wins_for_duplicate_policy_names() {
    let scene =
        PolicyFolder::with_files(&[("1.yaml", &policy("a", "Deny")), ("2.yaml", &policy("a", "Allow"))]);
    assert_eq!((scene.names(), scene.edits()), (vec!["a".to_owned()], EditsMode::Deny));
}

#[test]
fn a_volume_that_swaps_its_link_is_read_again() {
    let dir = TempDir::new().unwrap();
    let place = |generation: &str| dir.path().join(generation);
    for (generation, edits) in [("..1", "Deny"), ("..2", "Record")] {
        fs::create_dir(place(generation)).unwrap();
        fs::write(place(generation).join("a.yaml"), policy("a", edits)).unwrap();
    }
    symlink("..1", place("..data")).unwrap();
    symlink("..data/a.yaml", place("a.yaml")).unwrap();
    let in_force = resolver();
    let mut folder = PolicyDirectory::open(dir.path(), &in_force).unwrap();
    symlink("..2", place("..data_tmp")).unwrap();
    fs::rename(place("..data_tmp"), place("..data")).unwrap();
    let stamps = folder.look().unwrap();
    assert_ne!(stamps, folder.stamps);
    folder.read(stamps, &in_force);
    let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
    assert_eq!(in_force.resolver().policy(&release).edits, EditsMode::Record);
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let dir = TempDir::new().unwrap();
    let error = PolicyDirectory::open(&dir.path().join("nowhere"), &resolver()).err().unwrap();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let mut scene = PolicyFolder::with_files(&[("1.yaml", &policy("a", "Deny"))]);
    scene.write("1.yaml", &"#".repeat(MAX_FILE + 1));
    scene.reread();
    assert_eq!(scene.names(), ["a"]);
}

#[test]
fn file_that_cannot_be_read_is_tried_again_though_unchanged() {
    let mut scene =
        PolicyFolder::with_files(&[("1.yaml", &policy("a", "Deny")), ("2.yaml", &policy("b", "Deny"))]);
    fs::write(scene.dir.path().join("2.yaml"), b"\xff").unwrap();
    for _ in 0..2 {
        scene.reread();
        assert_eq!(scene.names(), ["a", "b"], "what it said before stays");
        assert_ne!(scene.folder.look().unwrap(), scene.folder.stamps);
    }
    scene.write("2.yaml", &policy("c", "Deny"));
    scene.reread();
    assert_eq!(scene.names(), ["a", "c"]);
    assert_eq!(scene.folder.look().unwrap(), scene.folder.stamps);
}

/// A policy, its file, what became of it, and what makes the change the same.
type Told = (String, String, PolicyFate, String);

#[test]
fn changes_of_policy_files_are_told_once_after_first_reading() {
    let told: Arc<parking_lot::Mutex<Vec<Told>>> = Arc::default();
    let mut scene =
        PolicyFolder::with_files(&[("1.yaml", &(policy("a", "Deny") + "---\n" + &policy("b", "Deny")))]);
    let heard = Arc::clone(&told);
    scene.folder = scene.folder.keeping(move |FileChange { policy, file, fate, same }| {
        heard.lock().push((policy, file, fate, same));
    });
    let mut changes = |text: &str| {
        scene.write("1.yaml", text);
        scene.reread();
        std::mem::take(&mut *told.lock())
    };
    // Another layout says the same.
    assert_eq!(changes(&(policy("b", "Deny") + "---\n# again\n" + &policy("a", "Deny"))), []);
    let brief = |changes: &[Told]| {
        changes.iter().map(|(name, file, fate, _)| (name.clone(), file.clone(), *fate)).collect::<Vec<_>>()
    };
    let expected = |name: &str, fate| (name.to_owned(), "1.yaml".to_owned(), fate);
    let first = changes(&(policy("a", "Warn") + "---\n" + &policy("c", "Deny")));
    assert_eq!(
        brief(&first),
        [
            expected("a", PolicyFate::Changed),
            expected("c", PolicyFate::Created),
            expected("b", PolicyFate::Deleted)
        ]
    );
    let back = changes(&policy("a", "Deny"));
    let again = changes(&policy("a", "Warn"));
    assert_eq!(
        (brief(&back)[0].clone(), brief(&again)),
        (expected("a", PolicyFate::Changed), brief(&first[..1]))
    );
    assert_ne!(first[0].3, again[0].3, "the same change again is another one");
}
