//! What follows from the list of contracts: the enums that the rest of the program knows them by, and the way from each to its file.

macro_rules! contracts {
    ($($number:literal $kind:ident, stream $rank:literal;)+) => {
        const CONTRACTS: usize = [$($number),+].len();

        /// How the fate of an entry is decided, with the settings of this way.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Contract {
            $($kind($kind),)+
        }

        /// The word for a contract. The numbers stand in [`crate::counter::Meaning`]s on disk.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mode {
            $($kind = $number,)+
        }

        /// The queue a submission waits in: each contract has its own, so that a flood of one does not delay the others.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Stream {
            #[default]
            $($kind = $rank,)+
        }

        /// The words for a declaration.
        pub(crate) const MODES: &[Word] =
            &[$(Word { name: <$kind as Promise>::TERMS.name, about: <$kind as Promise>::TERMS.about },)+];

        /// The fields of a declaration that belong to one contract, by contract.
        pub(crate) const SETTINGS: [&[Setting]; CONTRACTS] = [$(<$kind as Promise>::TERMS.settings,)+];

        impl Mode {
            pub const ALL: [Mode; CONTRACTS] = [$(Mode::$kind,)+];

            pub fn name(self) -> &'static str {
                self.terms().name
            }

            pub(crate) fn terms(self) -> &'static Terms {
                match self {
                    $(Mode::$kind => const { &<$kind as Promise>::TERMS },)+
                }
            }

            /// Reads the settings of a counter of this mode. Whatever is wrong is an error that was kept, and then this is `None`.
            pub(crate) fn parse(self, fields: &Fields<'_>) -> Option<Contract> {
                match self {
                    $(Mode::$kind => <$kind as Promise>::parse(fields).map(Contract::$kind),)+
                }
            }

            pub(crate) fn of_meant(self, fields: Box<[Field]>) -> Option<Contract> {
                match self {
                    $(Mode::$kind => <$kind as Promise>::of_meant(fields).map(Contract::$kind),)+
                }
            }

            #[inline]
            pub(crate) fn decided_by(self, stamp: &Stamp) -> Option<FactKey> {
                match self {
                    $(Mode::$kind => <$kind as Promise>::decided_by(stamp),)+
                }
            }

            #[inline(always)]
            pub(crate) fn judge(
                self,
                fates: &mut Fates,
                op: &Op,
                stamp: &Stamp,
                scene: &Scene<'_>,
                values: &mut impl Counts,
            ) -> Option<Answer> {
                match self {
                    $(Mode::$kind => <$kind as Promise>::judge(fates, op, stamp, scene, values),)+
                }
            }
        }

        impl Contract {
            #[inline]
            pub fn mode(&self) -> Mode {
                match self {
                    $(Contract::$kind(_) => Mode::$kind,)+
                }
            }

            #[inline]
            pub fn stream(&self) -> Stream {
                match self {
                    $(Contract::$kind(_) => Stream::$kind,)+
                }
            }

            #[inline]
            pub(crate) fn counts_together(&self) -> bool {
                match self {
                    $(Contract::$kind(_) => const { <$kind as Promise>::TERMS.counts_together },)+
                }
            }

            #[inline]
            pub(crate) fn takes_any_delta(&self) -> bool {
                match self {
                    $(Contract::$kind(_) => const { <$kind as Promise>::TERMS.takes_any_delta },)+
                }
            }

            #[inline(always)]
            pub(crate) fn identify<'d>(
                &'d self,
                counter: &'d Counter,
                desk: &mut StagingDesk,
                event: &impl Told,
            ) -> Result<Option<(CellKey, u64)>, Rejection<'d>> {
                match self {
                    $(Contract::$kind(contract) => contract.identify(counter, desk, event),)+
                }
            }

            /// What holds for a counter, whether its declaration says so or not, for people.
            pub fn described(&self) -> Vec<(&'static str, String)> {
                match self {
                    $(Contract::$kind(contract) => contract.described(),)+
                }
            }

            /// The fields that make an event unique; `None` if it is the counter's own id.
            pub fn identity(&self) -> Option<&[Field]> {
                match self {
                    $(Contract::$kind(contract) => contract.identity(),)+
                }
            }

            pub(crate) fn meant(&self) -> &[Field] {
                match self {
                    $(Contract::$kind(contract) => contract.meant(),)+
                }
            }

            pub(crate) fn repeats(&self) -> Option<&DedupSettings> {
                match self {
                    $(Contract::$kind(contract) => contract.repeats(),)+
                }
            }
        }

        impl Stream {
            /// In the order of their ranks.
            pub const ALL: [Stream; CONTRACTS] = {
                let mut all = [Stream::Simple; CONTRACTS];
                $(all[$rank] = Stream::$kind;)+
                all
            };

            pub fn mode(self) -> Mode {
                match self {
                    $(Stream::$kind => Mode::$kind,)+
                }
            }
        }
    };
}
