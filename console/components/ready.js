/** Why a node is not ready, in words, by the word of /ready. */
export const UNREADY = {
  opening: 'the store is being opened',
  draining: 'it is stopping',
  no_roles: 'drained: it has no role',
  not_serving: 'it answers, but asks for no traffic: the role serving is missing',
  full: 'no more connections or requests fit',
  failed: 'it has failed',
  stranded: 'stranded: it shows what is not in its leader\'s history',
};

/** What keeps changes from being taken while reads go on, in words, by the word of /ready. */
export const HELD_UP = {
  followers: 'held up: too few followers hold what is written',
  etcd: 'held up: etcd does not answer',
  leader: 'held up: nobody leads that this node knows of',
};
