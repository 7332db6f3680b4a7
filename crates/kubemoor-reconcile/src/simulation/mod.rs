//! The loop against a simulated cluster: everything from one seed and one clock.
//!
//! Entry point: [`run`]. A plan is a seed, a number of steps and the kinds of trouble
//! that happen in them; after that nothing happens any more but what guards do, and
//! everything has to be in sync within bounded time. A plan that fails is made
//! smaller, printed with its history, and becomes a row of [`FOUND`].

mod helm;
mod process;
mod scenes;
mod world;

use jiff::SignedDuration;

use self::helm::{SimulatedHelm, bystander, clean, guess, insist, meddle};
use self::process::SimulatedGuard;
use self::world::{NAMESPACE, StoredObject, World, denying};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::{ApplyMethod, ReleaseStatus};
use kubemoor_verdict::health::HealthReason;

/// Within which time everything is in sync once trouble has ended: the longest wait
/// between two repairs, a hold, and a change of leaders.
const BOUND: SignedDuration = SignedDuration::from_mins(30);

/// Seeds that are tried side by side.
const LANES: u64 = 4;

struct SimulationRun {
    random: Random,
    world: World,
    guards: Vec<SimulatedGuard>,
    helms: Vec<SimulatedHelm>,
    trouble: u32,
    orders: usize,
    /// The object that a controller holds, while trouble lasts.
    insists: Option<&'static str>,
}

impl SimulationRun {
    fn new(plan: Plan) -> Self {
        let mut random = Random::new(plan.seed);
        let mut world = World::new(plan.trouble & SEALS != 0);
        world.rewrites = plan.trouble & REWRITES != 0;
        world.lags = plan.trouble & LAGS != 0;
        (world.trouble, world.luck) = (plan.trouble, Random::new(!plan.seed));
        world.admission = (plan.trouble & DENIALS != 0).then(|| denying(plan.trouble & SEALS != 0));
        let helms = [("web", ApplyMethod::ServerSide), ("api", ApplyMethod::ClientSide)];
        let helms = helms.map(|(name, method)| SimulatedHelm::new(release(name), method));
        bystander(&mut world);
        let mut run = Self {
            guards: Vec::new(),
            helms: Vec::from(helms),
            trouble: plan.trouble,
            orders: 0,
            insists: (plan.trouble & INSISTENCE != 0).then(|| ["web-0", "api-0"][random.below(2)]),
            world,
            random: random.clone(),
        };
        let count = if run.has(SEVERAL) { 1 + random.below(3) } else { 1 };
        for number in 0..count {
            let guard = run.guard(number);
            run.guards.push(guard);
        }
        run
    }

    fn has(&self, trouble: u32) -> bool {
        self.trouble & trouble != 0
    }

    fn guard(&mut self, number: usize) -> SimulatedGuard {
        let skew = if self.has(SKEWS) { self.random.below(61) } else { 30 };
        let skew = SignedDuration::from_secs(i64::try_from(skew).unwrap_or_default() - 30);
        SimulatedGuard::new(number, skew, &mut self.world)
    }

    /// One thing happens.
    fn step(&mut self) {
        let guard = self.random.below(self.guards.len());
        match self.random.below(100) {
            0..20 => self.guards[guard].hear_object(&mut self.world),
            20..35 => {
                self.guards[guard].hear_record(&mut self.world);
                self.guards[guard].hear_orders(&self.world);
            }
            35..55 => self.guards[guard].work(&mut self.world, &mut self.random, self.trouble & LOSSES != 0),
            55..75 => self.guards[guard].tell(&mut self.world, &mut self.random),
            75..80 => self.guards[guard].lead(&mut self.world),
            80..88 => self.pass(),
            88..96 => self.helm(),
            _ => self.harm(guard),
        }
        if self.has(JUMPS | RECORDS | GUESSES) && self.world.luck.chance(5) {
            self.harm_anew(guard);
        }
        self.tick();
    }

    /// Time goes by.
    fn pass(&mut self) {
        let millis = [5, 100, 1000, 20_000][self.random.below(4)];
        self.world.now += SignedDuration::from_millis(millis);
    }

    fn tick(&mut self) {
        self.arrive();
        if let Some(object) = self.insists {
            insist(&mut self.world, object);
        }
        if self.world.terminating {
            self.world.go_on_terminating(&mut self.random);
        }
        for guard in &mut self.guards {
            guard.note_lead(&mut self.world);
            guard.wake(&mut self.world);
        }
    }

    fn helm(&mut self) {
        let place = self.random.below(self.helms.len());
        let chance = self.random.below(100);
        let (fails, uninstalls) = (self.has(FAILURES), self.has(UNINSTALLS));
        let is_first = !self.world.records.contains_key(&self.helms[place].id);
        let (upgrades, rolls_back) = (self.has(UPGRADES) || is_first, self.has(ROLLBACKS));
        let was_at_work = self.helms[place].is_at_work();
        let Self { helms, world, random, .. } = self;
        let helm = &mut helms[place];
        if world.terminating {
            helm.end();
        } else if helm.is_at_work() {
            match chance {
                0..4 if fails => helm.fail(world, false),
                4..6 if fails => helm.fail(world, true),
                _ => helm.step(world),
            }
        } else if chance < 5 && rolls_back {
            helm.roll_back(world, random);
        } else if chance < 20 && upgrades {
            let chart = helm.chart(random);
            helm.upgrade(world, &chart);
        } else if chance < 23 && uninstalls {
            helm.uninstall(world);
        }
        let has_ended = was_at_work && !self.helms[place].is_at_work();
        if has_ended && self.has(STOPS) && self.world.luck.chance(30) {
            self.replace();
        }
    }

    /// A guard ends as it is told to, and somebody makes a change before another one begins.
    fn replace(&mut self) {
        let Self { world, guards, .. } = self;
        let mut luck = world.luck.clone();
        let guard = luck.below(guards.len());
        guards[guard].stop(world, &mut luck);
        if luck.chance(50) {
            meddle(world, &mut luck, "kubectl-edit");
        }
        world.luck = luck;
        self.guards[guard] = self.guard(guard);
    }

    fn harm(&mut self, guard: usize) {
        if self.has(NAMESPACES) && !self.world.terminating && self.random.chance(5) {
            // Whoever is at work there can write nothing more.
            self.helms.iter_mut().for_each(SimulatedHelm::end);
            return self.world.begin_termination();
        }
        match self.random.below(8) {
            7 if self.has(TAMPERING) && self.random.chance(50) => {
                let place = self.random.below(self.helms.len());
                let helm = &self.helms[place];
                match helm.is_at_work() {
                    true => {}
                    false if self.random.chance(50) => self.world.tamper(&helm.id),
                    false => self.forge_foreign(place),
                }
            }
            7 if self.has(FORGERIES) => {
                let helm = &self.helms[self.random.below(self.helms.len())];
                if !helm.is_at_work() {
                    let manifest = helm.chart(&mut self.random);
                    helm.forge(&mut self.world, &manifest);
                }
            }
            0 if self.has(CRASHES) => {
                self.world.say(|| format!("guard {guard} crashes"));
                self.guards[guard] = self.guard(guard);
            }
            1 if self.has(EXPIRES) => self.guards[guard].expire(),
            2 if self.has(REPEATS) => {
                let count = self.random.below(4);
                self.guards[guard].repeat(count);
            }
            4 if self.has(RULINGS) && self.random.chance(50) => self.rule(!self.world.is_lenient),
            3 | 4 if self.has(HANDS) => meddle(&mut self.world, &mut self.random, "kubectl-edit"),
            5 if self.has(CONTROLLERS) => meddle(&mut self.world, &mut self.random, "operator"),
            6 if self.has(ORDERS) => self.order(),
            _ => {}
        }
    }

    /// One of the newer kinds of harm.
    fn harm_anew(&mut self, guard: usize) {
        let Self { world, guards, .. } = self;
        let guard = &mut guards[guard];
        match world.luck.below(4) {
            0 if world.has(JUMPS) => {
                let hours = if world.luck.chance(50) { 1 } else { -1 };
                guard.jump(SignedDuration::from_hours(hours), world);
            }
            1 if world.has(RECORDS) => guard.expire_records(),
            2 if world.has(RECORDS) => guard.repeat_records(1 + world.luck.below(3)),
            3 if world.has(GUESSES) => guess(world),
            _ => {}
        }
    }

    /// A record comes out of nothing with values that never were: all of them, or where policies
    /// ignore a field often that one alone.
    fn forge_foreign(&mut self, place: usize) {
        let helm = &self.helms[place];
        let in_force = self.world.records.get(&helm.id).and_then(|records| records.last());
        let is_ignored = self.trouble & RULINGS != 0;
        let foreign = match in_force.filter(|_| is_ignored) {
            Some(record) => record.manifest.replace("b: \"v", "b: \"e"),
            None => helm.chart(&mut self.random).replace("\"v", "\"e"),
        };
        helm.forge(&mut self.world, &foreign.into());
    }

    /// The policies let a field differ from now on, or no more.
    fn rule(&mut self, is_lenient: bool) {
        self.world.say(|| format!("policies are lenient: {is_lenient}"));
        self.world.is_lenient = is_lenient;
    }

    fn order(&mut self) {
        let releases: Vec<ReleaseId> = self.world.records.keys().cloned().collect();
        if let Some(release) = releases.get(self.random.below(releases.len())) {
            self.orders += 1;
            let at = format!("order {}", self.orders);
            self.world.say(|| format!("{at} for {release}"));
            self.world.unsure.insert(release.clone());
            self.world.orders.insert(release.clone(), at);
        }
    }
}

fn release(name: &str) -> ReleaseId {
    ReleaseId { namespace: NAMESPACE.into(), name: name.into() }
}

/// What goes wrong in a run, and its history.
fn run(plan: Plan) -> Option<(String, Vec<String>)> {
    let mut run = SimulationRun::new(plan);
    for _ in 0..plan.steps {
        run.step();
        if run.world.violation.is_some() {
            break;
        }
    }
    if run.world.violation.is_none() {
        run.recover();
    }
    let violation = run.world.violation.take()?;
    Some((violation, run.world.history))
}

/// A smaller plan that fails as well.
fn shrunk(plan: Plan) -> Plan {
    let mut plan = plan;
    for bit in 0..KINDS {
        let less = Plan { trouble: plan.trouble & !(1 << bit), ..plan };
        if less != plan && run(less).is_some() {
            plan = less;
        }
    }
    let mut step = plan.steps / 2;
    while step > 0 {
        let less = Plan { steps: plan.steps.saturating_sub(step), ..plan };
        if less != plan && run(less).is_some() {
            plan = less;
        } else {
            step /= 2;
        }
    }
    plan
}

/// Fails with what a plan leads to, made smaller.
#[track_caller]
fn check(plan: Plan) {
    if run(plan).is_some() {
        let plan = shrunk(plan);
        let (violation, history) = run(plan).unwrap_or_default();
        panic!("{violation}\n{plan:?}\n{}", history.join("\n"));
    }
}

/// The number of seeds that `KUBEMOOR_SEEDS` asks for, or those that every run of the tests tries.
#[allow(clippy::disallowed_methods, reason = "a setting of the test, not of the decision")]
fn seeds() -> u64 {
    std::env::var("KUBEMOOR_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200)
}

#[test]
fn every_run_keeps_the_invariants_and_ends_in_sync() {
    let check = |seed| {
        let mut random = Random::new(seed);
        let trouble = match random.below(4) {
            0 => ALL,
            _ => u32::try_from(random.next() % u64::from(ALL + 1)).unwrap_or_default(),
        };
        check(Plan { seed, steps: 100 + random.below(300), trouble });
    };
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            scope.spawn(move || (lane..seeds()).step_by(LANES as usize).for_each(check));
        }
    });
}

#[test]
fn bugs_found_by_earlier_simulations_do_not_return() {
    FOUND.into_iter().for_each(check);
}

/// Kinds of trouble, as bits of a plan.
pub(super) const CRASHES: u32 = 1;
pub(super) const EXPIRES: u32 = 1 << 1;
pub(super) const REPEATS: u32 = 1 << 2;
pub(super) const LOSSES: u32 = 1 << 3;
pub(super) const HANDS: u32 = 1 << 4;
pub(super) const CONTROLLERS: u32 = 1 << 5;
pub(super) const UPGRADES: u32 = 1 << 6;
pub(super) const FAILURES: u32 = 1 << 7;
pub(super) const UNINSTALLS: u32 = 1 << 8;
pub(super) const ORDERS: u32 = 1 << 9;
pub(super) const SEVERAL: u32 = 1 << 10;
pub(super) const SKEWS: u32 = 1 << 11;
pub(super) const FORGERIES: u32 = 1 << 12;
pub(super) const INSISTENCE: u32 = 1 << 13;
pub(super) const SEALS: u32 = 1 << 14;
pub(super) const REWRITES: u32 = 1 << 15;
pub(super) const TAMPERING: u32 = 1 << 16;
pub(super) const RULINGS: u32 = 1 << 17;
pub(super) const NAMESPACES: u32 = 1 << 18;
pub(super) const ROLLBACKS: u32 = 1 << 19;
pub(super) const DENIALS: u32 = 1 << 20;
pub(super) const LAGS: u32 = 1 << 21;

/// Writes of guards arrive late.
pub(super) const LATE: u32 = 1 << 22;
/// Clocks of guards are set.
pub(super) const JUMPS: u32 = 1 << 23;
/// Writes of guards are refused.
pub(super) const REFUSALS: u32 = 1 << 24;
/// Helm changes its method, keeps few revisions, and keeps the history of what it uninstalls.
pub(super) const HISTORIES: u32 = 1 << 25;
/// The watch of records breaks and repeats itself.
pub(super) const RECORDS: u32 = 1 << 26;
/// People write values that charts use.
pub(super) const GUESSES: u32 = 1 << 27;

/// A guard is told to stop right after an operation of Helm, and another one begins.
pub(super) const STOPS: u32 = 1 << 28;

/// How many kinds there are.
pub(super) const KINDS: u32 = 29;
pub(super) const ALL: u32 = (1 << KINDS) - 1;

/// What happens in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) steps: usize,
    pub(super) trouble: u32,
}

/// Plans that failed once.
pub(super) const FOUND: [Plan; 54] = [
    // An order came before news of its release, and was forgotten.
    Plan { seed: 154, steps: 87, trouble: 512 },
    Plan { seed: 255, steps: 189, trouble: 12800 },
    Plan { seed: 377, steps: 177, trouble: 1536 },
    // A record was rewritten as its operation ended, and its objects stood as by the manifest before.
    Plan { seed: 169, steps: 123, trouble: 65536 },
    // A report of a new revision named drift that was judged by the revision before.
    Plan { seed: 224, steps: 191, trouble: 4104 },
    // What was added below a sealed path was forgotten once a field beside it was put right.
    Plan { seed: 3136, steps: 169, trouble: 24608 },
    // A repair of several writes went on although Helm was known to be at work.
    Plan { seed: 3370, steps: 268, trouble: 217296 },
    // A doubt was settled by the policy of when it was read.
    Plan { seed: 15191, steps: 394, trouble: 201292 },
    // A new revision became known while an object was re-created by the one before.
    Plan { seed: 19198, steps: 246, trouble: 5160 },
    // Drift from what was declared before was told once more, because a look had failed.
    Plan { seed: 21936, steps: 339, trouble: 32986 },
    Plan { seed: 28453, steps: 231, trouble: 42056 },
    Plan { seed: 32119, steps: 360, trouble: 44233 },
    // The guard took back what it had made, for a record that is on hold: a false alarm.
    Plan { seed: 29830, steps: 167, trouble: 4128 },
    // An answer that was older than a listing brought back an object that the listing lacked.
    Plan { seed: 39633, steps: 342, trouble: 132176 },
    // Drift from the time when the operation had failed was told after it had been repeated with success.
    Plan { seed: 52836, steps: 357, trouble: 34016 },
    // What an order or a forged record left behind was taken for what Helm had dropped: false alarms.
    Plan { seed: 67798, steps: 358, trouble: 205516 },
    Plan { seed: 79919, steps: 332, trouble: 4112 },
    // An answer "not there" that was older than what a watch had told since was told as missing.
    Plan { seed: 53910, steps: 278, trouble: 300040 },
    // The same in the middle of a repair.
    Plan { seed: 172635, steps: 220, trouble: 271416 },
    // What changed while a revision did not declare it was in sync by the revision before, and so by the one after.
    Plan { seed: 85910, steps: 392, trouble: 16600 },
    // An object was gone by a listing, and the answer about what it had been before made it in sync.
    Plan { seed: 254472, steps: 367, trouble: 99898 },
    // An object was as before a failed upgrade, and so in sync by the next revision with the manifest that had failed.
    Plan { seed: 338305, steps: 393, trouble: 479432 },
    // An order that another replica had refused meanwhile, by a clock far ahead, was carried out after all.
    Plan { seed: 3873, steps: 220, trouble: 245710536 },
    Plan { seed: 9551, steps: 252, trouble: 244661860 },
    Plan { seed: 19234, steps: 129, trouble: 8404500 },
    // An order that the watch still showed as open was carried out again by the next leader.
    Plan { seed: 9551, steps: 275, trouble: 246759012 },
    Plan { seed: 33871, steps: 221, trouble: 245804585 },
    Plan { seed: 86246, steps: 387, trouble: 8662737 },
    Plan { seed: 104589, steps: 229, trouble: 212076032 },
    Plan { seed: 109248, steps: 206, trouble: 11273728 },
    Plan { seed: 113956, steps: 340, trouble: 245802524 },
    Plan { seed: 114192, steps: 280, trouble: 2430608 },
    // An ignored field that was not declared was applied with the others, and Helm's manager owned it.
    Plan { seed: 98021, steps: 361, trouble: 243401744 },
    // An apply that changes nothing but who owns a field was no change for the simulated API server.
    Plan { seed: 92884, steps: 315, trouble: 243663020 },
    // A record out of nothing was held by a clock that was an hour behind.
    Plan { seed: 99696, steps: 249, trouble: 41979944 },
    // A listing of the simulated records told nothing of a release that a read had found to be gone.
    Plan { seed: 204952, steps: 242, trouble: 100946988 },
    // What was read during an installation as not there yet was told as missing once the installation had failed.
    Plan { seed: 205140, steps: 221, trouble: 132288 },
    // What was decided once the hold had ended counted as too early where the clock was set back meanwhile.
    Plan { seed: 345253, steps: 205, trouble: 8454168 },
    Plan { seed: 410081, steps: 176, trouble: 8405016 },
    Plan { seed: 908275, steps: 272, trouble: 142802944 },
    // A pass from before another replica led answered an order that the other one had answered.
    Plan { seed: 544686, steps: 360, trouble: 244821597 },
    Plan { seed: 703062, steps: 304, trouble: 34498152 },
    Plan { seed: 950631, steps: 293, trouble: 8652552 },
    // What was missing while an installation was locked was told as drift once it and the one before had failed.
    Plan { seed: 956497, steps: 275, trouble: 8664768 },
    // A guard that was told to stop kept back what it had seen, for a drift that it had judged by the manifest before.
    Plan { seed: 12796, steps: 149, trouble: 480674320 },
    // A write was still on its way when its guard gave up the lead.
    Plan { seed: 59623, steps: 348, trouble: 314841384 },
    // What could not be read after a failed upgrade counted as not created by it.
    Plan { seed: 81389, steps: 347, trouble: 67607788 },
    // An object that was there before the guard created it anew counted as in sync, unseen.
    Plan { seed: 88078, steps: 187, trouble: 436471904 },
    // What was read before a listing without it counted as alive after that.
    Plan { seed: 112239, steps: 287, trouble: 42217122 },
    Plan { seed: 163717, steps: 359, trouble: 44019257 },
    // Helm made an object while the guard's re-creation of it was on its way, and that took Helm's new fields away.
    Plan { seed: 632905, steps: 345, trouble: 109903961 },
    // An uninstalled release was restored from memory, and its objects re-created as another field manager than Helm's.
    Plan { seed: 657059, steps: 321, trouble: 503322913 },
    // An uninstallation that began during a re-creation counted as dead by a clock an hour ahead.
    Plan { seed: 836761, steps: 332, trouble: 448860668 },
    // The dry run's answer made another manifest the nearest, and the difference from its own counted as settled.
    Plan { seed: 937052, steps: 300, trouble: 142878784 },
];

/// A generator (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if that is 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % limit).unwrap_or_default()
    }

    /// Yes in so many of a hundred cases.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// The time in which the loop accounts for all drift: no hold and no wait between two repairs lasts longer.
const WHILE: SignedDuration = SignedDuration::from_mins(15);

impl SimulationRun {
    /// Nothing happens any more but what guards do; until nothing is left to do, or
    /// for so long.
    pub(super) fn settle(&mut self, bound: SignedDuration) {
        let end = self.world.now + bound;
        while self.world.now < end && self.world.violation.is_none() {
            self.arrive();
            if let Some(object) = self.insists {
                insist(&mut self.world, object);
            }
            for place in 0..self.guards.len() {
                let guard = &mut self.guards[place];
                guard.hear_orders(&self.world);
                guard.lead(&mut self.world);
                guard.note_lead(&mut self.world);
                guard.wake(&mut self.world);
                while guard.is_behind(&self.world) {
                    guard.hear_record(&mut self.world);
                    guard.hear_object(&mut self.world);
                }
                for _ in 0..200 {
                    if !guard.has_work() {
                        break;
                    }
                    guard.work(&mut self.world, &mut self.random, false);
                    guard.tell(&mut self.world, &mut self.random);
                }
            }
            let due =
                self.guards.iter().filter_map(SimulatedGuard::due).chain(self.world.next_arrival()).min();
            let is_over = self.insists.is_none() && self.world.orders.is_empty();
            if is_over && due.is_none() && self.guards.iter().all(|guard| guard.is_at_rest(&self.world)) {
                self.world.now = end;
                return;
            }
            let lease = self.world.now + SignedDuration::from_secs(5);
            let next = due.map_or(lease, |due| due.clamp(self.world.now, lease));
            let soonest = self.world.now + SignedDuration::from_millis(5);
            self.world.now = next.max(soonest);
        }
    }

    /// Trouble has ended. Helm ends its work, and each release is written once more.
    pub(super) fn recover(&mut self) {
        self.world.trouble = 0;
        // Nobody does anything new for a while.
        let is_long = self.random.chance(30);
        self.settle(if is_long { WHILE } else { SignedDuration::from_mins(1) });
        if is_long && self.insists.is_none() && !self.world.terminating && !self.world.is_lenient {
            self.check_drift_is_accounted_for("after trouble");
            self.check_nothing_dropped_is_back("after trouble");
        }
        if self.world.violation.is_some() {
            return;
        }
        self.world.say(|| "trouble ends".to_owned());
        for guard in self.guards.iter_mut().filter(|guard| !guard.jumped.is_zero()) {
            guard.jump(-guard.jumped, &mut self.world);
        }
        self.insists = None;
        self.rule(false);
        while self.world.terminating {
            self.world.go_on_terminating(&mut self.random);
        }
        for place in 0..self.helms.len() {
            while self.helms[place].is_at_work() {
                self.helms[place].step(&mut self.world);
            }
            if self.world.records.contains_key(&self.helms[place].id) {
                let chart = self.helms[place].chart(&mut self.random);
                self.helms[place].upgrade(&mut self.world, &chart);
                while self.helms[place].is_at_work() {
                    self.helms[place].step(&mut self.world);
                    self.settle(SignedDuration::from_millis(10));
                }
            }
        }
        if self.has(SEALS) {
            clean(&mut self.world);
        }
        self.settle(BOUND);
        self.check_synced("after the last upgrade");
        for _ in 0..3 {
            meddle(&mut self.world, &mut self.random, "kubectl-edit");
        }
        self.settle(BOUND);
        self.check_synced("after the last edits");
    }

    /// Everything is as declared, and that is said.
    pub(super) fn check_synced(&mut self, when: &str) {
        let drift = self.world.drift();
        let leader = self.world.lease.holder.unwrap_or_default();
        let reports: Vec<_> = self.guards[leader].reports.values().cloned().collect();
        for report in &reports {
            let health = report.health();
            let own = format!("{}:", report.release);
            let is_synced = drift.iter().all(|line| !line.starts_with(&own));
            let latest = self.world.records.get(&report.release).and_then(|records| records.last());
            let is_deployed = latest.is_some_and(|it| it.status == ReleaseStatus::Deployed);
            if is_deployed && (health.reason == HealthReason::InSync) != is_synced {
                let message = health.message.clone();
                self.world.break_down(format!(
                    "{when}: {} is said to be {} ({message}), and: {drift:?}",
                    report.release,
                    health.reason.as_str()
                ));
            }
        }
        let reported = reports.len();
        if !drift.is_empty() {
            let said: Vec<String> = reports
                .iter()
                .map(|it| format!("{}: {} {:?}", it.release, it.health().message, it.drifted))
                .collect();
            self.world.break_down(format!("{when}: {drift:?}; {said:?}"));
        }
        if reported != self.world.records.len() {
            self.world.break_down(format!("{when}: {reported} reports of {}", self.world.records.len()));
        }
        if !self.world.orders.is_empty() {
            let orders = self.world.orders.clone();
            self.world.break_down(format!("{when}: orders are not answered: {orders:?}"));
        }
        self.check_nothing_dropped_is_back(when);
        self.check_nothing_gone_is_remembered(when);
    }

    /// Checks that the report names each object that drifts after the trouble, with a repair that was tried or the
    /// reason for none.
    pub(super) fn check_drift_is_accounted_for(&mut self, when: &str) {
        let leader = self.world.lease.holder.unwrap_or_default();
        for (id, names) in self.world.drifting() {
            let guard = &self.guards[leader];
            let Some(report) = guard.reports.get(&id) else { continue };
            // With a clock that is behind, a record is new for as long.
            if guard.is_held(&id, &self.world) {
                continue;
            }
            for name in names {
                let is_excused = report.excused.iter().any(|it| it.object.name == name)
                    || report.foreign.iter().any(|(object, _)| object.name == name);
                let found = report.drifted.iter().find(|it| it.object.name == name);
                let has_reason = found.is_some_and(|it| {
                    it.unrepaired_reason.is_some()
                        || it.repaired.is_some()
                        || it.contested
                        || it.needs_dry_run
                });
                if !is_excused && !has_reason {
                    self.world
                        .break_down(format!("{when}: {id}: {name} drifts, and nothing is done: {found:?}"));
                }
            }
        }
    }

    /// What Helm dropped is not there again by a guard's hand, unless the guard ended before it looked.
    pub(super) fn check_nothing_dropped_is_back(&mut self, when: &str) {
        let runs = |process: &usize| self.guards.iter().any(|guard| guard.process == *process);
        let is_made = |stored: &&StoredObject| self.world.made.get(&stored.uid).is_some_and(runs);
        let made: Vec<_> = self.world.objects.values().filter(is_made).cloned().collect();
        for stored in made {
            let Some(id) = stored.release().filter(|id| !self.world.unsure.contains(id)) else { continue };
            let latest = self.world.records.get(&id).and_then(|records| records.last());
            if latest.is_some_and(|latest| latest.status != ReleaseStatus::Deployed) {
                continue;
            }
            let is_declared = latest.is_some_and(|latest| {
                let documents = self.world.documents(&id, &latest.manifest);
                documents.iter().any(|(object, _)| *object == stored.id)
            });
            if !is_declared {
                self.world.break_down(format!("{when}: {} is back", stored.id.name));
            }
        }
    }

    /// A guard remembers objects that are there or that a release declares, and no others: their number has no bound.
    fn check_nothing_gone_is_remembered(&mut self, when: &str) {
        for guard in &self.guards {
            let is_needed = |object: &ObjectId| {
                self.world.objects.contains_key(object) || !guard.machine.known.claims(object).is_empty()
            };
            let machine = &guard.machine;
            if let Some(object) = machine.drifts.remembered().find(|object| !is_needed(object)) {
                let message = format!("{when}: guard {} remembers {}", guard.number, object.name);
                return self.world.break_down(message);
            }
            let concerned = machine.drifts.concerned();
            if let Some(release) = concerned.iter().find(|id| machine.known.release(id).is_none()) {
                let message = format!("{when}: guard {} has something to do for {release}", guard.number);
                return self.world.break_down(message);
            }
        }
    }
}
