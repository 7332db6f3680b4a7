//! What a simulated run goes through, and the runs that once failed.
//!
//! Entry points: [`Plan`], [`FOUND`]. Invariant: a plan names its run in full, so a failure can be repeated. Must not
//! know how a run is done.

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
pub(super) const FOUND: [Plan; 45] = [
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
    // The lead was lost between a re-creation and its taking back, and the release was gone when it came again.
    Plan { seed: 78049, steps: 338, trouble: 266528 },
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
];
