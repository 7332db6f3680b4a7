//! The checks of an installation: each is a function of the [`Observation`].

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;

use crate::cli::output::{counted, seconds};
use kubemoor_cluster::client::lease::LeaderInfo;
use kubemoor_declare::model::ReleaseId;
use kubemoor_guard::webhook::registration::keep::{Configuration, admins_conditions, listed, merge};
use kubemoor_guard::webhook::registration::{
    CONDITIONS, EDITS, LABELLED, NAME, RECORDS, REVERTS, SCALE, STATUS, WebhookAddress, WebhookResource,
    WebhookSettings, configuration, mutating,
};
use kubemoor_inspect::policies::ListedPolicy;
use kubemoor_policy::guarded::LeaseReference;
use kubemoor_runtime::config::{Endpoint, RecordDriver, ServiceRef};
use kubemoor_runtime::tls::{self, Validity};
use kubemoor_verdict::health::{HealthReason, STALE_AFTER};

/// The oldest version of Kubernetes that the guard supports.
const OLDEST: (u32, u32) = (1, 20);

/// How long before its expiry a certificate should have been renewed, at most a quarter of its lifetime: the guard and
/// cert-manager renew when a third is left.
const RENEWED_BEFORE: SignedDuration = SignedDuration::from_hours(14 * 24);

/// The most names in a message.
const NAMED: usize = 5;

/// One check of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(in crate::cli) struct CheckResult {
    /// The name of the check.
    pub(super) check: &'static str,
    /// The result of the check.
    pub(super) state: CheckState,
    /// What the check found, and what to do.
    pub(super) message: String,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(in crate::cli) enum CheckState {
    /// No problem was found.
    Ok,
    /// A user has to act.
    Attention,
    /// The check could not run; the message names the missing permission or the reason.
    Unknown,
}

/// Why a check is not ok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Attention(String),
    /// Completes "not checked: …".
    Unknown(String),
}

pub(super) type CheckInput<T> = Result<T, Problem>;

/// Everything that was read from the cluster.
pub(super) struct Observation {
    pub(super) now: Timestamp,
    /// How far the API server's clock is ahead of this machine's.
    pub(super) skew: SignedDuration,
    /// The version of this program.
    pub(super) client: String,
    /// The version of Kubernetes.
    pub(super) server: CheckInput<(u32, u32)>,
    pub(super) place: LeaseReference,
    pub(super) lease: CheckInput<Option<LeaderInfo>>,
    pub(super) workload: CheckInput<Option<Workload>>,
    /// Whether the emergency is open.
    pub(super) is_open: CheckInput<bool>,
    pub(super) validating: CheckInput<Option<ValidatingWebhookConfiguration>>,
    pub(super) mutating: CheckInput<Option<MutatingWebhookConfiguration>>,
    /// Whether the guard answered a dry run.
    pub(super) probe: CheckInput<bool>,
    pub(super) kinds: CheckInput<DeclaredKinds>,
    /// The rights that the guard lacks.
    pub(super) rights: CheckInput<Vec<String>>,
    pub(super) policies: CheckInput<Vec<ListedPolicy>>,
    pub(super) releases: CheckInput<Option<Vec<ReleaseReadiness>>>,
    /// Messages about replicas whose rows are missing from the ledger's answer.
    pub(super) ledger: CheckInput<Vec<String>>,
    /// The metrics of each pod that answered.
    pub(super) metrics: CheckInput<Vec<String>>,
}

/// The Deployment of the guard.
pub(super) struct Workload {
    pub(super) wanted: u64,
    pub(super) ready: u64,
    pub(super) account: String,
    /// Whether the guard keeps the webhook configurations itself.
    pub(super) registers: bool,
}

pub(super) struct DeclaredKinds {
    pub(super) resources: BTreeSet<WebhookResource>,
    pub(super) releases: usize,
    /// How many further releases could not be read.
    pub(super) unread: usize,
}

pub(super) struct ReleaseReadiness {
    pub(super) release: ReleaseId,
    /// The reason of its condition Ready; may be empty.
    pub(super) reason: String,
    pub(super) edits: String,
}

type CheckFunction = fn(&Observation) -> CheckInput<String>;

const CHECKS: [(&str, CheckFunction); 13] = [
    ("versions", versions),
    ("emergency", emergency),
    ("replicas", replicas),
    ("leader", leader),
    ("webhooks", webhooks),
    ("answer", answer),
    ("settings", settings),
    ("rules", rules),
    ("certificates", certificates),
    ("rights", rights),
    ("policies", policies),
    ("releases", releases),
    ("ledger", ledger),
];

pub(super) fn all(observation: &Observation) -> Vec<CheckResult> {
    let result = |(check, judge): (&'static str, CheckFunction)| {
        let (state, message) = match judge(observation) {
            Ok(message) => (CheckState::Ok, message),
            Err(Problem::Attention(message)) => (CheckState::Attention, message),
            Err(Problem::Unknown(why)) => (CheckState::Unknown, format!("not checked: {why}")),
        };
        CheckResult { check, state, message }
    };
    CHECKS.map(result).to_vec()
}

fn seen<T>(read: &CheckInput<T>) -> Result<&T, Problem> {
    read.as_ref().map_err(Problem::clone)
}

/// Both values, or the problems of both.
fn both<'s, A, B>(one: &'s CheckInput<A>, other: &'s CheckInput<B>) -> Result<(&'s A, &'s B), Problem> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (Err(Problem::Unknown(one)), Err(Problem::Unknown(other))) if one != other => {
            unknown(format!("{one}, and {other}"))
        }
        (Err(problem), _) | (_, Err(problem)) => Err(problem.clone()),
    }
}

fn attention<T>(message: impl Into<String>) -> CheckInput<T> {
    Err(Problem::Attention(message.into()))
}

fn unknown<T>(why: impl Into<String>) -> CheckInput<T> {
    Err(Problem::Unknown(why.into()))
}

fn versions(observation: &Observation) -> CheckInput<String> {
    let (major, minor) = *seen(&observation.server)?;
    let client = &observation.client;
    if (major, minor) < OLDEST {
        return attention(format!("Kubernetes is {major}.{minor}; the guard needs 1.20 or later"));
    }
    let guard = seen(&observation.lease)?.as_ref().and_then(|info| info.version.as_ref());
    let Some(guard) = guard else { return unknown("no Lease names the version of the guard") };
    let numbers = |version: &str| -> Vec<u64> {
        version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect()
    };
    match numbers(guard).cmp(&numbers(client)) {
        std::cmp::Ordering::Less => attention(format!(
            "the guard ({guard}) is behind this program ({client}): upgrade the guard, or use a program of its version"
        )),
        std::cmp::Ordering::Greater => attention(format!(
            "the guard ({guard}) is ahead of this program ({client}): use a program of its version"
        )),
        std::cmp::Ordering::Equal => {
            Ok(format!("this program and the guard are {guard}, Kubernetes is {major}.{minor}"))
        }
    }
}

fn emergency(observation: &Observation) -> CheckInput<String> {
    match seen(&observation.is_open)? {
        true => attention(
            "the emergency is open, so no change is checked and nothing is repaired: `kubemoor emergency close` ends it",
        ),
        false => Ok("no emergency is open".to_owned()),
    }
}

fn replicas(observation: &Observation) -> CheckInput<String> {
    let LeaseReference { namespace, name } = &observation.place;
    let Some(Workload { wanted, ready, .. }) = seen(&observation.workload)? else {
        return unknown(format!("there is no Deployment {name} in namespace {namespace}"));
    };
    match ready < wanted || *wanted == 0 {
        true => attention(format!(
            "{ready} of {wanted} pods are ready: `kubectl -n {namespace} get pods` shows which, \
             `kubectl -n {namespace} describe pod` why"
        )),
        false => Ok(format!("{ready} of {wanted} pods are ready")),
    }
}

fn leader(observation: &Observation) -> CheckInput<String> {
    let LeaseReference { namespace, name } = &observation.place;
    let Some(info) = seen(&observation.lease)? else {
        return attention(format!(
            "there is no Lease {name} in namespace {namespace}, so no guard runs there: install one, or name its \
             namespace with --guard-namespace"
        ));
    };
    let log = format!("`kubectl -n {namespace} logs deployment/{name}` says why");
    let Some(renewed) = info.renewed.filter(|_| !info.holder.is_empty()) else {
        return attention(format!("no replica leads, so nothing is repaired: {log}"));
    };
    let holder = &info.holder;
    let age = observation.now.duration_since(renewed) + observation.skew;
    if age > STALE_AFTER {
        let since = seconds(renewed);
        return attention(format!(
            "the Lease has not been renewed since {since}, so nothing is repaired, or the clock of {holder} \
             is behind the API server's: {log}"
        ));
    }
    if age < -STALE_AFTER {
        let ahead = age.unsigned_abs().as_secs();
        return attention(format!("the clock of {holder} is {ahead} s ahead of the API server's: set it"));
    }
    Ok(format!("{holder} leads; it renewed the Lease {} s ago", age.as_secs().max(0)))
}

/// The two webhook configurations, or a problem if one is missing.
fn registered(
    observation: &Observation,
) -> Result<(&ValidatingWebhookConfiguration, &MutatingWebhookConfiguration), Problem> {
    if matches!(observation.is_open, Ok(true)) {
        return unknown("the emergency has removed the webhooks");
    }
    let missing = |kind: &str| {
        Problem::Attention(format!(
            "there is no {kind} {NAME}, so changes are not checked: start the guard with --register, or \
             apply the output of `kubemoor manifests webhook`"
        ))
    };
    let (validating, mutating) = both(&observation.validating, &observation.mutating)?;
    Ok((
        validating.as_ref().ok_or_else(|| missing("ValidatingWebhookConfiguration"))?,
        mutating.as_ref().ok_or_else(|| missing("MutatingWebhookConfiguration"))?,
    ))
}

/// Like [`registered`], for other checks than `webhooks`: a missing configuration is `Unknown`, not a finding.
fn registered_or_unknown(
    observation: &Observation,
) -> Result<(&ValidatingWebhookConfiguration, &MutatingWebhookConfiguration), Problem> {
    registered(observation).map_err(|problem| match problem {
        Problem::Attention(_) => Problem::Unknown("a webhook configuration is missing".to_owned()),
        unknown => unknown,
    })
}

fn webhooks(observation: &Observation) -> CheckInput<String> {
    let (validating, mutating) = registered(observation)?;
    check_ca_bundles(validating)?;
    check_ca_bundles(mutating)?;
    let releases = observation.releases.as_ref().ok().and_then(Option::as_ref).into_iter().flatten();
    let reverted: Vec<_> =
        releases.filter(|it| it.edits == "Revert").map(|it| it.release.to_string()).collect();
    if !reverted.is_empty() && !has(&mutating.webhooks(), REVERTS) {
        return attention(format!(
            "no webhook reverts changes, but the mode of {} is Revert: start the guard with --register, or \
             apply the output of `kubemoor manifests webhook --edits Revert`",
            listed(&reverted, NAMED)
        ));
    }
    let count = validating.webhooks().len() + mutating.webhooks().len();
    Ok(format!("{} are registered", counted(count, "webhook")))
}

/// Checks that each webhook of a Service has a `caBundle`.
fn check_ca_bundles<C: Configuration>(live: &C) -> CheckInput<()> {
    let lacks = |webhook: &ValidatingWebhook| {
        let config = &webhook.client_config;
        config.service.is_some() && config.ca_bundle.as_ref().is_none_or(|bundle| bundle.0.is_empty())
    };
    let lacking: Vec<_> = live.webhooks().into_iter().filter(lacks).map(|webhook| webhook.name).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let mut annotations = live.meta().annotations.iter().flatten();
    let (kind, names) = (C::KIND, listed(&lacking, NAMED));
    attention(match annotations.any(|(key, _)| key.starts_with("cert-manager.io/inject-")) {
        true => format!(
            "cert-manager has not filled in the caBundle of the {kind} {NAME} ({names}): look at its log and at the \
             Certificate"
        ),
        false => format!(
            "webhooks of the {kind} {NAME} have no caBundle, so the API server trusts no guard ({names}): start the guard \
             with --register, or give `kubemoor manifests webhook` the --ca-file"
        ),
    })
}

fn has(webhooks: &[ValidatingWebhook], suffix: &str) -> bool {
    webhooks.iter().any(|webhook| webhook.name.ends_with(suffix))
}

fn answer(observation: &Observation) -> CheckInput<String> {
    let (validating, _) = registered_or_unknown(observation)?;
    if *seen(&observation.probe)? {
        return Ok("the API server reaches the guard: it answered a dry run".to_owned());
    }
    let guard = observation.lease.as_ref().ok().and_then(|info| info.as_ref()?.version.as_ref());
    if guard.is_none_or(|guard| *guard != observation.client) {
        return unknown("only a guard of this program's version answers the dry run");
    }
    let policies: BTreeSet<_> =
        validating.webhooks().into_iter().filter_map(|it| it.failure_policy).collect();
    let policies = policies.into_iter().collect::<Vec<_>>().join(" and ");
    let namespace = &observation.place.namespace;
    attention(format!(
        "the guard did not answer a dry run, so changes pass unchecked (failurePolicy {policies}): check \
         that its pods are ready and that the API server reaches their port 9443 (`kubectl -n {namespace} \
         get endpointslices`)"
    ))
}

/// Helm's storage driver, by the resource that the live webhook for records matches.
pub(super) fn live_driver(live: Option<&ValidatingWebhookConfiguration>) -> RecordDriver {
    let webhooks = live.map(Configuration::webhooks).unwrap_or_default();
    let mut records = webhooks.iter().filter(|webhook| webhook.name == RECORDS).flat_map(rules_of);
    match records.any(|rule| rule.resources.iter().flatten().any(|resource| resource == "configmaps")) {
        true => RecordDriver::Configmap,
        false => RecordDriver::Secret,
    }
}

fn rules_of(webhook: &ValidatingWebhook) -> impl Iterator<Item = &RuleWithOperations> {
    webhook.rules.iter().flatten()
}

/// The resources whose changes the live webhooks match.
fn live_resources(webhooks: &[ValidatingWebhook]) -> BTreeSet<WebhookResource> {
    let paths = |suffix: &'static str| {
        let named = webhooks.iter().filter(move |webhook| webhook.name.ends_with(suffix));
        named.flat_map(rules_of).flat_map(|rule| {
            let one = |list: &Option<Vec<String>>| list.iter().flatten().next().cloned().unwrap_or_default();
            let (group, version) = (one(&rule.api_groups), one(&rule.api_versions));
            let resources = rule.resources.iter().flatten();
            resources.map(move |resource| (group.clone(), version.clone(), resource.clone()))
        })
    };
    let scaled: BTreeSet<_> = paths(SCALE).collect();
    let resource = |(group, version, plural): (String, String, String)| {
        let scale = scaled.contains(&(group.clone(), version.clone(), format!("{plural}/scale")));
        WebhookResource { group, version, plural, scale }
    };
    paths(EDITS).map(resource).collect()
}

/// The configurations that this version would register for these resources, with the options of the live ones.
fn expected(
    observation: &Observation,
    resources: &BTreeSet<WebhookResource>,
    (validating, reverting): (&ValidatingWebhookConfiguration, &MutatingWebhookConfiguration),
) -> (ValidatingWebhookConfiguration, MutatingWebhookConfiguration) {
    let LeaseReference { namespace, name } = &observation.place;
    let endpoint =
        Endpoint::Service(ServiceRef { namespace: namespace.clone(), name: name.clone(), port: 443 });
    let live = validating.webhooks();
    let of_all =
        |webhook: &&ValidatingWebhook| webhook.name.ends_with(EDITS) && !webhook.name.ends_with(LABELLED);
    let mut selectors =
        live.iter().filter(of_all).map(|it| it.object_selector.clone().unwrap_or_default()).peekable();
    let registers = matches!(&observation.workload, Ok(Some(workload)) if workload.registers);
    let is_new = observation.server.as_ref().is_ok_and(|version| *version >= CONDITIONS);
    let surface = WebhookSettings {
        endpoint: &endpoint,
        address: WebhookAddress::Bare,
        ca_bundle: None,
        own_namespace: Some(namespace),
        record_driver: live_driver(Some(validating)),
        select_all: has(&live, LABELLED)
            || (selectors.peek().is_some() && selectors.all(|selector| selector == LabelSelector::default())),
        reverts: has(&reverting.webhooks(), REVERTS),
        // A static configuration has no match conditions.
        conditions: (registers && is_new) || has(&live, STATUS),
    };
    (configuration(resources, &surface), mutating(resources, &surface))
}

/// The webhooks of a live configuration whose guard-owned fields differ from what this version would register, and
/// those with a `namespaceSelector` or match conditions of the admin.
fn differences<C: Configuration>(live: &C, mut expected: C) -> (Vec<String>, Vec<String>) {
    let webhooks = live.webhooks();
    let known: BTreeMap<_, _> = webhooks.iter().map(|webhook| (webhook.name.as_str(), webhook)).collect();
    let mut wanted = expected.webhooks();
    for webhook in &mut wanted {
        // The address holds a token, and the CA has its own check.
        if let Some(known) = known.get(webhook.name.as_str()) {
            webhook.client_config.clone_from(&known.client_config);
        }
    }
    let is_admins = |wanted: &&ValidatingWebhook| {
        known.get(wanted.name.as_str()).is_some_and(|known| {
            known.namespace_selector.clone().unwrap_or_default()
                != wanted.namespace_selector.clone().unwrap_or_default()
                || admins_conditions(known.match_conditions.as_deref()).is_some()
        })
    };
    let admins = wanted.iter().filter(is_admins).map(|webhook| webhook.name.clone()).collect();
    expected.set_webhooks(wanted);
    let merged = merge(live, &expected).map(|merged| merged.webhooks()).unwrap_or_default();
    let is_other = |webhook: &&ValidatingWebhook| known.get(webhook.name.as_str()) != Some(webhook);
    let mut others: Vec<_> = merged.iter().filter(is_other).map(|webhook| webhook.name.clone()).collect();
    if !merged.is_empty() {
        let kept: BTreeSet<_> = merged.iter().map(|webhook| webhook.name.as_str()).collect();
        others.extend(known.keys().filter(|name| !kept.contains(*name)).map(|name| (*name).to_owned()));
    }
    (others, admins)
}

fn settings(observation: &Observation) -> CheckInput<String> {
    let live = registered_or_unknown(observation)?;
    let guard = seen(&observation.lease)?.as_ref().and_then(|info| info.version.as_ref());
    if guard.is_some_and(|guard| *guard != observation.client) {
        return unknown("a guard of another version registers other webhooks");
    }
    let webhooks = [live.0.webhooks(), live.1.webhooks()].concat();
    let (validating, mutating) = expected(observation, &live_resources(&live.0.webhooks()), live);
    let (judging, answering) = (differences(live.0, validating), differences(live.1, mutating));
    let (others, admins) = ([judging.0, answering.0].concat(), [judging.1, answering.1].concat());
    if !others.is_empty() {
        return attention(format!(
            "rules, objectSelector or conditions of webhooks are not those of this version ({}): a guard \
             with --register restores them, otherwise apply the output of `kubemoor manifests webhook`",
            listed(&others, NAMED)
        ));
    }
    let mut policies = BTreeMap::<_, usize>::new();
    for webhook in &webhooks {
        *policies.entry(webhook.failure_policy.as_deref().unwrap_or("Fail")).or_default() += 1;
    }
    let policies: Vec<_> =
        policies.into_iter().map(|(policy, count)| format!("{policy} ({count})")).collect();
    let own = match admins.len() {
        0 => "selectors and conditions are the guard's".to_owned(),
        _ => format!("namespaceSelector or conditions are yours in {}", listed(&admins, NAMED)),
    };
    Ok(format!("failurePolicy {}; {own}", policies.join(", ")))
}

fn rules(observation: &Observation) -> CheckInput<String> {
    let live = registered_or_unknown(observation);
    let (live, DeclaredKinds { resources, releases, unread }) = both(&live, &observation.kinds)?;
    let sent = live_resources(&live.0.webhooks());
    let is_sent = |wanted: &WebhookResource| {
        sent.contains(wanted) || sent.contains(&WebhookResource { scale: true, ..wanted.clone() })
    };
    // Some declared kinds are never registered.
    let wanted = live_resources(&expected(observation, resources, *live).0.webhooks());
    let unsent: Vec<_> = wanted
        .iter()
        .filter(|resource| !is_sent(resource))
        .map(|WebhookResource { group, version, plural, .. }| match group.as_str() {
            "" => format!("{plural} ({version})"),
            group => format!("{plural}.{group} ({version})"),
        })
        .collect();
    if !unsent.is_empty() {
        return attention(format!(
            "the API server does not send all changes of {}, which releases declare: a guard with --register \
             adds them, otherwise apply the output of `kubemoor manifests webhook`, with these kinds",
            listed(&unsent, NAMED)
        ));
    }
    let lacking = match unread {
        0 => String::new(),
        unread => format!("; the records of {} cannot be read", counted(*unread, "more release")),
    };
    let kinds = counted(wanted.len(), "kind");
    Ok(format!("changes of {kinds} of {} are sent{lacking}", counted(*releases, "release")))
}

fn certificates(observation: &Observation) -> CheckInput<String> {
    let (validating, mutating) = registered_or_unknown(observation)?;
    let webhooks = [validating.webhooks(), mutating.webhooks()].concat();
    let bundles: BTreeSet<_> =
        webhooks.into_iter().filter_map(|it| Some(it.client_config.ca_bundle?.0)).collect();
    let mut told = Vec::new();
    for bundle in bundles.iter().filter(|bundle| !bundle.is_empty()) {
        let valid = tls::validities(&String::from_utf8_lossy(bundle)).unwrap_or_default();
        // While a CA is being replaced, the old one stays for a while.
        let Some(longest) = valid.into_iter().max_by_key(|(_, until)| *until) else {
            return attention("a caBundle has no readable certificate: register the webhooks again");
        };
        told.push(remaining("the authority in the caBundle", longest, observation.now)?);
    }
    match &observation.metrics {
        Ok(pods) => {
            for pod in pods {
                let time = |name| Timestamp::from_second(metric(pod, name)? as i64).ok();
                let begin = time("kubemoor_certificate_not_before_timestamp_seconds");
                let end = time("kubemoor_certificate_expiration_timestamp_seconds");
                if let Some(validity) = begin.zip(end) {
                    told.push(remaining("the certificate in use", validity, observation.now)?);
                }
            }
        }
        Err(Problem::Unknown(why) | Problem::Attention(why)) => {
            told.push(format!("the certificate in use was not checked: {why}"));
        }
    }
    told.dedup();
    Ok(told.join("; "))
}

/// How long a certificate remains valid, or a problem if it should have been renewed.
fn remaining(what: &str, (from, until): Validity, now: Timestamp) -> CheckInput<String> {
    let left = until.duration_since(now);
    let (days, end) = (left.as_hours() / 24, seconds(until));
    if left <= SignedDuration::ZERO {
        return attention(format!("{what} ended at {end}: renew it (docs/operations.md, Certificates)"));
    }
    if left < RENEWED_BEFORE.min(until.duration_since(from) / 4) {
        return attention(format!(
            "{what} ends in {days} days, at {end}, and was not renewed: see the guard's log, or renew it"
        ));
    }
    Ok(format!("{what} is valid for {days} days"))
}

/// The value of a metric in the text of a scrape.
fn metric(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn rights(observation: &Observation) -> CheckInput<String> {
    let missing = seen(&observation.rights)?;
    match missing.is_empty() {
        true => Ok("the guard's account has the rights that it needs".to_owned()),
        false => attention(format!(
            "the guard's account may not {}: apply its roles again (deploy/rbac.yaml, or upgrade the chart)",
            listed(missing, NAMED)
        )),
    }
}

fn policies(observation: &Observation) -> CheckInput<String> {
    let policies = seen(&observation.policies)?;
    let named = |is_meant: &dyn Fn(&ListedPolicy) -> bool| -> Vec<String> {
        policies.iter().filter(|policy| is_meant(policy)).map(|policy| policy.name.clone()).collect()
    };
    let sets = [
        ("not accepted", named(&|policy| policy.accepted == "False")),
        ("in conflict", named(&|policy| policy.accepted != "False" && policy.reason == "Conflict")),
        ("not judged by a guard yet", named(&|policy| policy.accepted == "Unknown")),
    ];
    let told: Vec<_> = sets
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{} {what} ({})", names.len(), listed(names, NAMED)))
        .collect();
    match told.is_empty() {
        true => Ok(format!("policies in force: {}", policies.len())),
        false => {
            attention(format!("of {} {}: `kubemoor get policies` says why", policies.len(), told.join(", ")))
        }
    }
}

fn releases(observation: &Observation) -> CheckInput<String> {
    let Some(releases) = seen(&observation.releases)? else {
        return attention(
            "the cluster has no CustomResourceDefinition of GuardedRelease: `kubemoor manifests crds` prints \
             it",
        );
    };
    let mut told = Vec::new();
    let mut states = Vec::new();
    for reason in HealthReason::ALL {
        let is_meant = reason.is_stalled() || *reason == HealthReason::Unwatched;
        let of_reason = releases.iter().filter(|state| is_meant && state.reason == reason.as_str());
        let names: Vec<_> = of_reason.map(|state| state.release.to_string()).collect();
        if !names.is_empty() {
            told.push(format!("{} {} ({})", names.len(), reason.as_str(), listed(&names, NAMED)));
            states.push(reason.as_str());
        }
    }
    match told.is_empty() {
        true => Ok(format!("releases guarded: {}; none needs attention", releases.len())),
        false => attention(format!(
            "{}: `kubemoor get releases -A --state {}` says what to do",
            told.join(", "),
            states.join(",")
        )),
    }
}

fn ledger(observation: &Observation) -> CheckInput<String> {
    let missing = seen(&observation.ledger)?;
    if !missing.is_empty() {
        return attention(format!("{}: see the logs of these pods", missing.join("; ")));
    }
    let pods = match &observation.metrics {
        Ok(pods) => pods,
        Err(Problem::Unknown(why) | Problem::Attention(why)) => {
            return Ok(format!("it answers; lost rows were not counted: {why}"));
        }
    };
    let sum = |name| pods.iter().filter_map(|pod| metric(pod, name)).sum::<f64>();
    let lost = sum("kubemoor_ledger_rows_total{outcome=\"lost\"}");
    if pods.iter().any(|pod| metric(pod, "kubemoor_ledger_up") == Some(0.0)) {
        return attention(
            "its database takes no rows, which go to the guard's standard output: see the guard's log and \
             docs/ledger.md (When the database fails)",
        );
    }
    if lost > 0.0 {
        return attention(format!(
            "{lost} rows were lost since the guard started: see its log and docs/ledger.md (When the database fails)"
        ));
    }
    Ok("it answers, and no row is lost".to_owned())
}

#[cfg(test)]
mod tests;
