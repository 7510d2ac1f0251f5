%% The work of `baton bench actors` by OTP: see on_erlang.py.
-module(bench_actors).
-export([main/2, init/1, callback_mode/0, handle_call/3, handle_cast/2, handle_event/4, start_child/0, start_link/1,
         members/2]).

main(Work, Seconds) ->
    io:format("~w~n", [measure(Work, Seconds)]).

measure('call', Seconds) ->
    {ok, Pid} = gen_server:start_link(?MODULE, 0, []),
    rate(fun() -> repeat(500, fun() -> gen_server:call(Pid, 1) end), 500 end, Seconds);
measure('cast-state', Seconds) ->
    {ok, Pid} = gen_server:start_link(?MODULE, 0, []),
    rate(fun() -> repeat(10000, fun() -> gen_server:cast(Pid, 1) end), gen_server:call(Pid, 1), 10000 end, Seconds);
measure('machine', Seconds) ->
    {ok, Pid} = gen_statem:start_link(?MODULE, {on, 0}, []),
    rate(fun() -> repeat(10000, fun() -> gen_statem:cast(Pid, flip) end), gen_statem:call(Pid, count), 10000 end, Seconds);
measure('groups', Seconds) ->
    members(self(), 10000),
    broadcasts(Seconds);
measure('groups-3', Seconds) ->
    Args = ["+S", "1", "-setcookie", atom_to_list(erlang:get_cookie()), "-pa", filename:dirname(code:which(?MODULE)),
            "-kernel", "inet_dist_use_interface", "{127,0,0,1}"],
    [begin
         {ok, _, Node} = peer:start_link(#{name => Name, host => "localhost", args => Args}),
         erpc:call(Node, ?MODULE, members, [self(), 3333])
     end || Name <- [bench_two, bench_three]],
    members(self(), 3334),
    all_there(),
    broadcasts(Seconds);
measure('pool', Seconds) ->
    {ok, Pool} = poolboy:start_link([{worker_module, ?MODULE}, {size, 10}, {max_overflow, 0}], 0),
    rate(fun() -> repeat(500, fun() -> poolboy:transaction(Pool, fun(_) -> ok end) end), 500 end, Seconds);
measure('spawn', _) ->
    {ok, Pid} = supervisor:start_link(?MODULE, supervisor),
    {Us, _} = timer:tc(fun() -> repeat(100000, fun() -> {ok, _} = supervisor:start_child(Pid, []) end) end),
    100000 / Us * 1.0e6.

members(Me, Count) ->
    {ok, _} = pg:start(pg),
    ok = pg:join(all, [spawn(fun() -> member(Me, 0) end) || _ <- lists:seq(1, Count)]).

all_there() ->
    case length(pg:get_members(all)) of
        10000 -> ok;
        _ -> timer:sleep(10), all_there()
    end.

broadcasts(Seconds) ->
    rate(fun() ->
             repeat(4, fun() -> [M ! told || M <- pg:get_members(all)] end),
             [M ! tell || M <- pg:get_members(all)],
             repeat(10000, fun() -> receive told -> ok end end),
             50000
         end, Seconds).

member(Me, Count) ->
    receive
        told -> member(Me, Count + 1);
        tell -> Me ! told, member(Me, Count + 1)
    end.

repeat(0, _) -> ok;
repeat(N, F) -> F(), repeat(N - 1, F).

%% How many things a second: `Chunk` says how many it did.
rate(Chunk, Seconds) ->
    _ = go_on(Chunk, erlang:monotonic_time(microsecond), Seconds * 0.15, 0),
    go_on(Chunk, erlang:monotonic_time(microsecond), Seconds, 0).

go_on(Chunk, Began, Seconds, Done) ->
    Took = (erlang:monotonic_time(microsecond) - Began) / 1.0e6,
    if Took < Seconds -> go_on(Chunk, Began, Seconds, Done + Chunk());
       true -> Done / Took
    end.

init(supervisor) ->
    Child = #{id => child, start => {?MODULE, start_child, []}, restart => temporary},
    {ok, {#{strategy => simple_one_for_one}, [Child]}};
init({State, Data}) -> {ok, State, Data};
init(State) -> {ok, State}.

start_child() -> start_link(0).

start_link(State) -> gen_server:start_link(?MODULE, State, []).

handle_call(_, _, State) -> {reply, State, State}.
handle_cast(N, State) -> {noreply, State + N}.

callback_mode() -> handle_event_function.

handle_event(cast, flip, on, Data) -> {next_state, off, Data + 1};
handle_event(cast, flip, off, Data) -> {next_state, on, Data + 1};
handle_event({call, From}, count, _, Data) -> {keep_state, Data, [{reply, From, Data}]}.
