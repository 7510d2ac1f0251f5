/** A client of the players' door for browsers and node (docs/reference/players-door.md). */

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
    find: () => Promise<string>;
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
  take(frame: unknown[]): { changed: WatchedEntity[]; left: string[] };
  close(topic: number): string[];
  isShown(name: string, topics: number[]): boolean;
}

/** Throws for what is no CBOR. */
export function decode(bytes: Uint8Array): unknown;
export function encode(value: unknown): Uint8Array;
/** Throws for what is no patch of this value. */
export function patched(value: unknown, patch: unknown): unknown;
