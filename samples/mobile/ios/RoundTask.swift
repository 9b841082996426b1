// RoundTask.swift - rounds as a BGProcessingTask, and the system's callbacks that reach the client.
// Untested: neither compiled nor run on a device here. The identifier also stands in Info.plist.
import BackgroundTasks
import Foundation
import Network
import PhoneJob
import UIKit

final class RoundTask {
    static let identifier = "org.example.round"
    private let job: OpaquePointer
    private let queue = DispatchQueue(label: "org.example.round") // job_run() is on this one alone
    private let network = NWPathMonitor()
    private let memory = DispatchSource.makeMemoryPressureSource(eventMask: [.normal, .warning, .critical])

    /// `folder` has isExcludedFromBackup set: a store that comes back on another phone would pass for this one.
    init?(folder: String, url: String, caFile: String, signingKey: [UInt8], budgetBytes: UInt64) {
        var text = [CChar](repeating: 0, count: 256)
        let opened: OpaquePointer? = folder.withCString { folder in
            url.withCString { url in
                caFile.withCString { caFile in
                    signingKey.withUnsafeBufferPointer { key in
                        var settings = phone_job_settings(folder: folder, server_url: url, ca_file: caFile,
                                                          signing_key: key.baseAddress, budget_bytes: budgetBytes)
                        return job_open(&settings, &text, text.count)
                    }
                }
            }
        }
        guard let opened = opened else {
            NSLog("rounds: %@", String(cString: text))
            return nil
        }
        job = opened
        watch()
    }

    deinit { job_close(job) }

    /// Before application(_:didFinishLaunchingWithOptions:) returns.
    func register() {
        BGTaskScheduler.shared.register(forTaskWithIdentifier: Self.identifier, using: queue) { [self] task in
            task.expirationHandler = { [self] in job_expire(job) } // iOS gives a few seconds more
            tellConditions()
            let answer = job_run(job)
            schedule(afterMs: job_wait_ms(job))
            task.setTaskCompleted(success: answer == PHONE_JOB_DONE)
        }
    }

    func schedule(afterMs: Int64) {
        let request = BGProcessingTaskRequest(identifier: Self.identifier)
        request.requiresExternalPower = true
        request.requiresNetworkConnectivity = true
        request.earliestBeginDate = Date(timeIntervalSinceNow: Double(afterMs) / 1000)
        try? BGTaskScheduler.shared.submit(request)
    }

    // Battery and expensive networks: the client looks between pieces of work and during transfers.
    private func tellConditions() {
        let battery = UIDevice.current.batteryState
        let path = network.currentPath
        job_set_conditions(job, battery == .charging || battery == .full, !path.isExpensive && !path.isConstrained)
    }

    private func watch() {
        UIDevice.current.isBatteryMonitoringEnabled = true
        network.pathUpdateHandler = { [weak self] _ in self?.tellConditions() }
        network.start(queue: .global())
        NotificationCenter.default.addObserver(forName: UIDevice.batteryStateDidChangeNotification, object: nil,
                                               queue: nil) { [weak self] _ in self?.tellConditions() }
        // Memory: obeyed in the middle of a training step.
        memory.setEventHandler { [weak self] in
            guard let self = self else { return }
            let now = self.memory.data
            job_set_pressure(self.job, now.contains(.critical) ? PHONE_JOB_CRITICAL
                : now.contains(.warning) ? PHONE_JOB_LOW : PHONE_JOB_CALM)
        }
        memory.resume()
        // Heat: the round is paused until the next task.
        NotificationCenter.default.addObserver(forName: ProcessInfo.thermalStateDidChangeNotification, object: nil,
                                               queue: nil) { [weak self] _ in
            guard let self = self else { return }
            let state = ProcessInfo.processInfo.thermalState
            if state == .serious || state == .critical { job_expire(self.job) }
        }
    }
}
