//! A command line of `helm`, as the documentation has it, for the Helm SDK.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// Flags without a value that a page may give.
const SWITCHES: [&str; 4] = ["--create-namespace", "--no-hooks", "--reuse-values", "--wait"];

/// What a command line says.
#[derive(Debug)]
pub(crate) struct HelmLine {
    pub(crate) operation: String,
    /// The release, the chart: what is no flag.
    pub(crate) names: Vec<String>,
    pub(crate) namespace: String,
    /// Of all `-f` and `--set`.
    pub(crate) values: Value,
    pub(crate) switches: BTreeSet<String>,
}

impl HelmLine {
    /// Reads the words of a command; `files` are those that `-f` may name.
    ///
    /// # Errors
    /// When a flag or a file is not known.
    pub(crate) fn read(words: &[String], files: &BTreeMap<String, Value>) -> Result<Self, String> {
        let mut line = Self {
            operation: words.get(1).cloned().unwrap_or_default(),
            names: Vec::new(),
            namespace: "default".to_owned(),
            values: json!({}),
            switches: BTreeSet::new(),
        };
        let mut words = words.iter().skip(2);
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().ok_or_else(|| format!("{word} has no value"));
            match word.as_str() {
                "-n" | "--namespace" => line.namespace = value()?,
                "-f" | "--values" => {
                    let file = value()?;
                    let given = files.get(&file).ok_or_else(|| format!("no fence begins with `# {file}`"))?;
                    merge(&mut line.values, given);
                }
                "--set" => {
                    let value = value()?;
                    let (path, text) = value.split_once('=').ok_or_else(|| format!("--set {value}"))?;
                    set(&mut line.values, path, text);
                }
                switch if SWITCHES.contains(&switch) => {
                    line.switches.insert(switch.to_owned());
                }
                flag if flag.starts_with('-') => return Err(format!("{flag} is no flag that is known")),
                name => line.names.push(name.to_owned()),
            }
        }
        Ok(line)
    }

    /// Whether it gives values to the chart of Kubemoor.
    pub(crate) fn is_of_the_chart(&self) -> bool {
        self.names.get(1).is_some_and(|chart| chart == "deploy/chart")
    }

    /// The options of the SDK.
    pub(crate) fn options(&self) -> Value {
        let mut options = json!({"values": self.values});
        for (switch, option) in
            [("--create-namespace", "create_namespace"), ("--reuse-values", "reuse_values")]
        {
            if self.switches.contains(switch) {
                options[option] = json!(true);
            }
        }
        options
    }
}

/// Writes a value at a path, as `--set` does.
fn set(values: &mut Value, path: &str, text: &str) {
    let mut place = values;
    for name in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[name];
    }
    let scalar = match text {
        "true" | "false" | "null" => true,
        _ => text == "0" || text.parse::<i64>().is_ok() && !text.starts_with('0'),
    };
    *place = if scalar { text.parse().unwrap() } else { json!(text) };
}

fn merge(values: &mut Value, more: &Value) {
    match (values.as_object_mut(), more.as_object()) {
        (Some(values), Some(more)) => {
            for (name, value) in more {
                merge(values.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        _ => *values = more.clone(),
    }
}
