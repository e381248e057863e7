/** Why a node is not ready, in words, by the word of /ready. */
export const UNREADY = {
  opening: 'the store is being opened',
  draining: 'the node is stopping',
  no_roles: 'drained: the node has no role',
  not_serving: 'not serving: the role serving is missing',
  full: 'no more connections or requests fit',
  failed: 'the node has failed',
  stranded: 'stranded: it shows commits that its leader does not have',
};

/** What keeps changes from being taken while reads go on, in words, by the word of /ready. */
export const HELD_UP = {
  followers: 'held up: too few followers are in sync',
  etcd: 'held up: etcd does not respond',
  leader: 'held up: no leader is known',
};
