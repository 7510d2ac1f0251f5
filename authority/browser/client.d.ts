/** A client of an instance for browsers (docs/reference/browser-client.md). */

export interface WatchedEntity {
  readonly name: string;
  readonly kind: string;
  /** Empty: nobody. */
  readonly owner: string;
  /** Of its authority; with `sub`, its fence. */
  readonly epoch: number;
  readonly sub: number;
  readonly tick: number;
  /** The server's round of ticks in which it was so; rounds follow each other at the tick rate. */
  readonly round: number;
  /** What the world shows: maps are objects if all keys are texts, else `Map`s; bytes are `Uint8Array`s. */
  readonly state: unknown;
}

/** A door does not show what is asked for, or an input was not applied; `code` is stable. */
export class Refused extends Error {
  readonly code: string;
  /** For people, without the code. */
  readonly sentence: string;
}

/** Exactly one of entity, owner, pattern and area. */
export interface Watched {
  entity?: string;
  owner?: string;
  pattern?: string;
  area?: { centre?: number[] | null; around?: string; radius: number } | null;
  rate_hz?: number;
}

/** A message of the door beside states; its fields are those of the protocol. */
export interface DoorMessage {
  readonly type: string;
  readonly [field: string]: unknown;
}

export interface Refusal extends DoorMessage {
  readonly code: string;
  readonly message: string;
}

/** Throws `Refused`, `bad_subscription`, for what no door takes to be watched. */
export function checkWatched(asked: Watched): void;

/** A player's keys, whose private halves cannot be read. */
export interface PlayerKeys {
  readonly signing: CryptoKeyPair;
  readonly agreement: CryptoKeyPair;
  readonly kid: string;
  /** The public halves, as they are registered with an instance. */
  readonly jwks: JsonWebKey[];
}

export function makeKeys(): Promise<PlayerKeys>;
/** The keys of a player that this browser keeps (IndexedDB, of this page's origin); new ones, if it keeps none. */
export function loadKeys(player: string): Promise<PlayerKeys>;
/** A compact JWS (ES256), as homeservers take it for a proof. */
export function sign(statement: object, player: string, keys: PlayerKeys): Promise<string>;

export class Door {
  /** `url` may be a function that finds it, anew for each connection; empty: not known now. */
  constructor(url: string | (() => Promise<string>), who?: { player?: string; keys?: PlayerKeys | null; session?: () => Uint8Array | null });
  readonly server: string;
  readonly isOpen: boolean;
  readonly reconnections: number;
  readonly clock: TickClock;
  /** Is called with "open", "closed", or the code with which the door refused. */
  onstate: (state: string) => void;
  /** Is called with what is no state: acknowledgements, where an entity went, and the like. */
  onmessage: (message: DoorMessage) => void;
  watch(
    asked: Watched,
    onchange: (entity: WatchedEntity) => void,
    ongone?: (name: string) => void,
    onrefused?: (refusal: Refusal) => void,
  ): () => void;
  /** Whether it was sent: not while the door is closed. */
  send(message: DoorMessage): boolean;
  close(): void;
  /** End the connection without a word, as networks do. For tests of what outlives that. */
  breakOff(): void;
}

/** What comes first from the other end of a connection. */
export interface DoorChallenge extends DoorMessage {
  readonly server: string;
  readonly challenge: Uint8Array;
  readonly versions: number[];
}

/** What a client says first: a session, or a signature of the challenge; nothing of an observer. */
export function helloOf(
  challenge: DoorChallenge,
  player: string,
  keys: PlayerKeys | null,
  session: Uint8Array | null,
): Promise<DoorMessage>;
/** The signature of a challenge. */
export function proofOf(server: string, challenge: Uint8Array, player: string, keys: PlayerKeys): Promise<string>;

/** A connection that is opened anew whenever it ends, until `close`. */
export class Connection {
  constructor(parts: {
    subprotocol: string;
    find: () => Promise<string | Door>;
    hello: (challenge: DoorChallenge) => Promise<DoorMessage>;
    onopen: (welcome: DoorMessage) => void;
    onmessage: (message: DoorMessage | unknown[]) => void;
    onclosed: (reason: string, wasOpen: boolean) => void;
  });
  readonly isOpen: boolean;
  readonly isClosed: boolean;
  send(message: DoorMessage): boolean;
  close(): void;
  breakOff(): void;
}

/** When the rounds of a server's ticks are, by `performance.now()`. */
export class TickClock {
  constructor(tickHz?: number);
  readonly periodMs: number;
  /** By how much the latest frame of late was later than the quickest. */
  readonly latenessMs: number;
  heard(round: number, nowMs: number): void;
  /** NaN as long as nothing was heard. */
  timeOf(round: number): number;
  roundAt(nowMs: number): number;
}

export class Mirror {
  readonly entities: ReadonlyMap<string, WatchedEntity>;
  /** What is held of topics by an earlier connection: topic, last frame, last base. */
  readonly held: [number, number, number][];
  /** The mirror of the next connection to the same run of the same server. */
  successor(): Mirror;
  take(frame: unknown[]): { changed: WatchedEntity[]; left: string[] };
  close(topic: number): string[];
  isShown(name: string, topics: number[]): boolean;
}

/** Throws for what is no CBOR. */
export function decode(bytes: Uint8Array): unknown;
export function encode(value: unknown): Uint8Array;
/** Throws for what is no patch of this value. */
export function patched(value: unknown, patch: unknown): unknown;

/** An instance refused, with a stable `code`; `unreachable`: it does not answer. */
export class HomeFailure extends Error {
  readonly code: string;
  /** For people, without the code. */
  readonly sentence: string;
}

/** What has become of an entity since it was looked at last. */
export interface EntityUpdate {
  readonly entity: WatchedEntity;
  /** Negative after a failover, if ticks were lost that nobody has. */
  readonly ticks: number;
  readonly isGone: boolean;
  readonly server: string;
}

/** Exactly one of entity, owner, pattern, and an area (centre or around, and radius). */
export interface Asked {
  entity?: string;
  owner?: string;
  pattern?: string;
  centre?: number[] | null;
  around?: string;
  radius?: number;
  /** How often at most; with every tick, if it is not said. */
  rateHz?: number;
}

/** Between which two states a moment is, and how much of the way is done, from 0 to 1. */
export interface Between {
  readonly before: WatchedEntity;
  readonly after: WatchedEntity;
  readonly share: number;
}

export interface Watch extends AsyncIterableIterator<EntityUpdate> {
  /** By name, what is known now. */
  readonly entities: ReadonlyMap<string, WatchedEntity>;
  /** Which server showed it last; empty if none did. */
  serverOf(name: string): string;
  /** Whether no door shows it at this moment: it is on its way, or its server has died. */
  isLost(name: string): boolean;
  /** What is to be drawn now, which was some ten milliseconds ago; null: nothing is known. */
  at(name: string, nowMs?: number): Between | null;
  /** With what a door refused to show it, after `client.watch` had taken it; null: none did. `for await` throws it. */
  readonly refused: Refused | null;
  close(): void;
}

export interface Steering {
  readonly entity: string;
  /** Who owns the entity instead of this player; empty while it does itself. */
  readonly owner: string;
  /** How many inputs were given and are not known to be applied. */
  readonly waiting: number;
  /** The entity's tick by which the last input known to be applied was applied. */
  readonly tick: number;
  /** Another page or program of this player steers it by now: everything throws `Refused`, `steered_elsewhere`. */
  readonly isTaken: boolean;
  /** Give an input of at most 4,096 bytes; its number. Waits while 512 are not acknowledged. */
  give(data: Uint8Array): Promise<number>;
  /** Wait until it is applied; throws `Refused` if the entity has another owner, or is deleted. */
  applied(number: number): Promise<number>;
  /** Wait until no failure of a server can take it back. */
  durable(number: number): Promise<void>;
}

/** What a request of REST answers; its members are those of docs/reference/rest.md. */
export type Answer = { readonly [member: string]: unknown };

export interface Client {
  /** Empty for an observer. */
  readonly player: string;
  /** How many connections to doors were lost while something was wanted of them. */
  readonly reconnections: number;
  readonly home: Home;
  /** Is called with what servers say besides states: `imminent_loss`, and `entity`, `transfer`, `question`, `gone`. */
  onevent: (message: DoorMessage) => void;
  watch(asked: Asked): Promise<Watch>;
  steer(entity: string): Promise<Steering>;
  spawn(id: string, how: { kind: string; server: string; params?: object; [member: string]: unknown }): Promise<Answer>;
  own(entity: string, how?: { transferId?: string; [member: string]: unknown }): Promise<Answer>;
  move(entity: string, to: string, how?: { transferId?: string; [member: string]: unknown }): Promise<Answer>;
  divest(entity: string, ownerRev: number, how?: { ifWanted?: boolean }): Promise<Answer>;
  handBack(entity: string, ownerRev: number): Promise<Answer>;
  leave(entity: string, ownerRev: number): Promise<Answer>;
  lock(entity: string, name: string, locksRev: number): Promise<Answer>;
  unlock(entity: string, name: string, locksRev: number): Promise<Answer>;
  delete(entity: string, masterRev: number): Promise<Answer>;
  release(entity: string, masterRev: number, releaseRev: number, how?: { discardInputs?: boolean }): Promise<Answer>;
  attach(entity: string, parent: string, parentRev: number): Promise<Answer>;
  changeRights(entity: string, seen: Answer, changes: { [member: string]: unknown }): Promise<Answer>;
  entity(entity: string): Promise<Answer>;
  why(entity: string): Promise<Answer>;
  transfer(transferId: string): Promise<Answer>;
  cancel(transferId: string): Promise<Answer>;
  servers(): Promise<Answer[]>;
  server(name: string): Promise<Answer>;
  loads(): Promise<Answer>;
  keysOf(player: string): Promise<Answer>;
  owned(): Promise<Answer[]>;
  questions(): Promise<Answer[]>;
  answer(question: { transfer_id: string; master_rev: number }, isYes: boolean): Promise<Answer>;
  transfers(entity: string, limit?: number): Promise<Answer[]>;
  follow(entities: string[]): void;
  /** The player has finished: an entity that is about to leave may go at once. Whether that was sent. */
  letGo(entity: string): boolean;
  close(): void;
}

/** The homeservers of an instance: one connection to whichever of them answers, over a door that is open anyhow. */
export class Home {
  constructor(url: string, who?: { player?: string; keys?: PlayerKeys | null; invitation?: string | null });
  /** The door over which homeservers are reached; null for a WebSocket of its own, as it is while no door is open. */
  readonly way: Door | null;
  /** What this player may do, as `welcome` says it; null before. */
  readonly welcome: DoorMessage | null;
  ready(): Promise<void>;
  /** A request of REST, of those that a player may make. Throws `HomeFailure`. */
  ask(method: string, target: string, body?: object | null): Promise<any>;
  simservers(): Promise<string[]>;
  close(): void;
}

/**
 * A client of the instance that has a homeserver at this address; an observer, if it is no player.
 *
 * With an `invitation` the player's keys are registered first; an empty one comes where an instance lets everybody in.
 */
export function connect(
  url: string,
  who?: { player?: string; keys?: PlayerKeys | null; invitation?: string | null },
): Promise<Client>;

/** The inputs for one entity, without network and time. */
export class InputStream {
  constructor(entity: string, target: string, nowMs: number, apart?: number);
}

/** The last states of entities, with the times at which they were. */
export class JitterBuffer {
  /** How long ago it was what is drawn now. */
  readonly delayMs: number;
  add(entity: WatchedEntity, atMs: number, periodMs: number, latenessMs: number): void;
  remove(name: string): void;
  at(name: string, nowMs: number): Between | null;
}
