# What ExUnit does when it waits for messages, and with what it supervises; test_kit_recorded.py has a case for each line.
# Run it with `elixir record_kit.exs`. Every line it prints is `what was done: what ExUnit did`.
:logger.set_primary_config(:level, :none)
say = fn what, x -> IO.puts("#{what}: #{inspect(x)}") end
flush = fn -> Stream.repeatedly(fn -> receive do m -> m after 30 -> nil end end) |> Enum.take_while(&(&1 != nil)) end
defmodule Asserts do
  import ExUnit.Assertions
  def second do send(self(), :first); send(self(), {:second, 2}); {assert_receive({:second, _}, 100), left()} end
  def missing do send(self(), :other); (try do assert_receive(:wanted, 20) rescue ExUnit.AssertionError -> {:failed, left()} end) end
  def later do me = self(); spawn(fn -> Process.sleep(30); send(me, :late) end); {assert_receive(:late, 200), left()} end
  def received do (try do me = self(); spawn(fn -> Process.sleep(30); send(me, :late) end); assert_received(:late) rescue ExUnit.AssertionError -> Process.sleep(60); {:failed, left()} end) end
  def refuted do send(self(), :other); {refute_receive(:unwanted, 20), left()} end
  def came do send(self(), :other); send(self(), :unwanted); (try do refute_receive(:unwanted, 20) rescue ExUnit.AssertionError -> {:failed, left()} end) end
  def refute_now do {refute_received(:unwanted), left()} end
  defp left, do: Stream.repeatedly(fn -> receive do m -> m after 0 -> nil end end) |> Enum.take_while(&(&1 != nil))
end
say.("waits: assert_receive of the second message, and what is left", Asserts.second())
say.("waits: assert_receive of what does not come, and what is left", Asserts.missing())
say.("waits: assert_receive of what comes later", Asserts.later())
say.("waits: assert_received of what comes later", Asserts.received())
say.("waits: refute_receive of what does not come, and what is left", Asserts.refuted())
say.("waits: refute_receive of what is there, and what is left", Asserts.came())
say.("waits: refute_received", Asserts.refute_now())
ExUnit.start(autorun: false, formatters: [])
defmodule Supervised do
  use ExUnit.Case
  defmodule Noisy do
    use GenServer
    def start_link({name, to}), do: GenServer.start_link(__MODULE__, {name, to}, name: name)
    def init({name, to}) do Process.flag(:trap_exit, true); send(to, {:began, name}); {:ok, {name, to}} end
    def terminate(_, {name, to}), do: send(to, {:ended, name})
  end
  test "t" do
    to = :persistent_term.get(:to)
    child = fn name -> Supervisor.child_spec({Noisy, {name, to}}, id: name) end
    start_supervised!(child.(:x)); start_supervised!(child.(:y)); start_supervised!(child.(:z))
    send(to, {:stop, stop_supervised(:y)})
    send(to, {:stop, stop_supervised(:nobody)})
    send(to, {:again, start_supervised(child.(:x)) |> elem(0)})
    before = Process.whereis(:z); Process.exit(before, :kill); Process.sleep(50)
    send(to, {:restarted, Process.whereis(:z) != before and Process.whereis(:z) != nil})
    send(to, :over)
  end
end
:persistent_term.put(:to, self())
ExUnit.run()
say.("children: what three supervised children and their test do", flush.())
