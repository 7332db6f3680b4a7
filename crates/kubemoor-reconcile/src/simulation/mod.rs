//! The loop against a simulated cluster: everything from one seed and one clock.
//!
//! Entry point: [`run`]. A plan is a seed, a number of steps and the kinds of trouble
//! that happen in them; after that nothing happens any more but what guards do, and
//! everything has to be in sync within bounded time. A plan that fails is made
//! smaller, printed with its history, and becomes a row of [`FOUND`].

mod admission;
mod answers;
mod check;
mod flight;
mod flights;
mod helm;
mod namespace;
mod plan;
mod process;
mod random;
mod recovery;
mod scenes;
mod standings;
mod stored;
mod world;
mod writes;

use jiff::SignedDuration;

use self::admission::denying;
use self::helm::{Helm, bystander, guess, insist, meddle};
use self::plan::{
    ALL, CONTROLLERS, CRASHES, DENIALS, EXPIRES, FAILURES, FORGERIES, FOUND, GUESSES, HANDS, INSISTENCE,
    JUMPS, KINDS, LAGS, LOSSES, NAMESPACES, ORDERS, Plan, RECORDS, REPEATS, REWRITES, ROLLBACKS, RULINGS,
    SEALS, SEVERAL, SKEWS, STOPS, TAMPERING, UNINSTALLS, UPGRADES,
};
use self::process::Guard;
use self::random::Random;
use self::world::{NAMESPACE, World};
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::record::ApplyMethod;

/// Within which time everything is in sync once trouble has ended: the longest wait
/// between two repairs, a hold, and a change of leaders.
const BOUND: SignedDuration = SignedDuration::from_mins(30);

/// Seeds that are tried side by side.
const LANES: u64 = 4;

struct Run {
    random: Random,
    world: World,
    guards: Vec<Guard>,
    helms: Vec<Helm>,
    trouble: u32,
    orders: usize,
    /// The object that a controller holds, while trouble lasts.
    insists: Option<&'static str>,
}

impl Run {
    fn new(plan: Plan) -> Self {
        let mut random = Random::new(plan.seed);
        let mut world = World::new(plan.trouble & SEALS != 0);
        world.rewrites = plan.trouble & REWRITES != 0;
        world.lags = plan.trouble & LAGS != 0;
        (world.trouble, world.luck) = (plan.trouble, Random::new(!plan.seed));
        world.admission = (plan.trouble & DENIALS != 0).then(|| denying(plan.trouble & SEALS != 0));
        let helms = [("web", ApplyMethod::ServerSide), ("api", ApplyMethod::ClientSide)];
        let helms = helms.map(|(name, method)| Helm::new(release(name), method));
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

    fn guard(&mut self, number: usize) -> Guard {
        let skew = if self.has(SKEWS) { self.random.below(61) } else { 30 };
        let skew = SignedDuration::from_secs(i64::try_from(skew).unwrap_or_default() - 30);
        Guard::new(number, skew, &mut self.world)
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
            self.helms.iter_mut().for_each(Helm::end);
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
    let mut run = Run::new(plan);
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
