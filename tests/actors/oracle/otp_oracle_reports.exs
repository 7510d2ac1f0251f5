# The fourth part of otp_oracle.txt: what the reports of crashes say of whom they are about, and metadata of log lines.
# Run it with `elixir otp_oracle_reports.exs`. Every line it prints is `what was done: what Elixir did`.
defmodule Reports do
  def log(%{msg: {:report, %{label: {:proc_lib, :crash}, report: [info | _]}}}, %{config: %{to: to}}), do: send(to, {:crash, info})
  def log(%{meta: %{of: :case} = meta}, %{config: %{to: to}}), do: send(to, {:line, Map.take(meta, [:request, :of])})
  def log(_, _), do: :ok
end
defmodule Boss do
  use GenServer
  def init(_), do: {:ok, nil}
  def handle_call({:do, f}, _, s), do: {:reply, f.(), s}
  def handle_cast({:do, f}, s) do f.(); {:noreply, s} end
end
:logger.add_handler(:reports, Reports, %{config: %{to: self()}})
Logger.configure_backend(:console, level: :emergency)
:logger.remove_handler(Logger); :logger.remove_handler(:default)
require Logger
Process.register(self(), :main)
say = fn what, x -> IO.puts("#{what}: #{inspect(x)}") end
crash = fn -> receive do {:crash, info} -> info after 500 -> :none end end
line = fn -> receive do {:line, meta} -> meta after 500 -> :none end end
names = fn pids -> Enum.map(pids, fn p when is_pid(p) -> (case Process.info(p, :registered_name) do {_, n} when is_atom(n) -> n; _ -> :gone end); n -> n end) end
ancestors = fn info -> names.(info[:ancestors]) |> Enum.take_while(&(&1 != :main)) end
callers = fn info -> names.(info[:dictionary][:"$callers"] || []) end
Process.flag(:trap_exit, true)
{:ok, _} = Supervisor.start_link([%{id: 1, start: {GenServer, :start_link, [Boss, nil, [name: :boss]]}}, {Task.Supervisor, name: :tasks}], strategy: :one_for_one, name: :sup, max_restarts: 100)
GenServer.cast(:boss, {:do, fn -> raise "boom" end})
say.("report: the ancestors of a server under a supervisor", ancestors.(crash.()))
Process.sleep(50)
GenServer.call(:boss, {:do, fn -> Process.flag(:trap_exit, true) end})
GenServer.call(:boss, {:do, fn -> {:ok, p} = GenServer.start_link(Boss, nil, name: :free); GenServer.cast(p, {:do, fn -> raise "boom" end}) end})
say.("report: the ancestors of a server that another started", ancestors.(crash.()))
GenServer.call(:boss, {:do, fn -> Task.async(fn -> raise "boom" end); :ok end})
i = crash.()
say.("report: ancestors and callers of a task of a server", {ancestors.(i), callers.(i)})
GenServer.call(:boss, {:do, fn -> Task.Supervisor.async_nolink(:tasks, fn -> raise "boom" end); :ok end})
i = crash.()
say.("report: ancestors and callers of a task under a task supervisor", {ancestors.(i), callers.(i)})
GenServer.call(:boss, {:do, fn -> Task.start_link(fn -> raise "boom" end); :ok end})
i = crash.()
say.("report: ancestors and callers of a task that is only linked", {ancestors.(i), callers.(i)})
GenServer.call(:boss, {:do, fn -> Task.async(fn -> Process.register(self(), :outer); Process.flag(:trap_exit, true); Task.async(fn -> raise "boom" end); Process.sleep(300) end); :ok end})
i = crash.()
say.("report: ancestors and callers of a task of a task", {ancestors.(i), callers.(i)})
Logger.metadata(request: 7)
Logger.info("x", of: :case)
say.("log: a line after metadata was set", line.())
Logger.metadata(user: 1); Logger.metadata(request: nil)
Logger.info("x", of: :case)
say.("log: a line after the metadata was set to nil", line.())
Logger.metadata(request: 8)
GenServer.call(:boss, {:do, fn -> Logger.info("x", of: :case) end})
say.("log: a line of another process", line.())
GenServer.call(:boss, {:do, fn -> Logger.metadata(request: 9) end})
GenServer.call(:boss, {:do, fn -> Logger.info("x", of: :case) end})
say.("log: a line of a later callback", line.())
